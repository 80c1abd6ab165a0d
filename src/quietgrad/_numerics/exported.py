"""Functions of a point as programs in a file, which any process runs at many points without their code.

A program is StableHLO that `jax.export` writes: later versions of jax run it, on any device. Arrays that
the function uses are its arguments, so that they need not be in each of several programs.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from .lapack import INLINE, largest_divisor, operations

# Devices that a program is made for. Where one of them cannot run it, it is for this device alone.
DEVICES = ("cpu", "cuda", "rocm", "tpu")
# Calls out of the program that are known to compute and nothing else: linear algebra, FFTs, checks of
# shapes. Any other one, a call back to Python above all, is neither written nor run.
HARMLESS = re.compile(
    r"lapack_\w+|cusolver_\w+|cublas_\w+|hipsolver_\w+|hipblas_\w+|cu_lu_\w+|ducc_fft|dynamic_ducc_fft|"
    r"shape_assertion|stablehlo\.\w+|chlo\.\w+|mhlo\.\w+|Sharding|Qr|Eigh|LuDecomposition|TopK|"
    r"ProductOfElementaryHouseholderReflectors|ApproxTopK|\w*threefry2x32\w*"
)
NO_DERIVATIVES = (
    "a program that was read from a file has no derivatives; loaded.with_target(target) or "
    "load(path, family=...) gives what it was made from"
)
# A function of arrays and a point, which returns some arrays.
OfPoint = Callable[[tuple[Array, ...], Float[Array, " dim"]], tuple[Array, ...]]


@dataclasses.dataclass(frozen=True)
class Program:
    """A serialised function at many points, for at most `at_once` of them if that is not zero.

    None stands for one that could not be exported.
    """

    content: bytes | None = dataclasses.field(repr=False)
    at_once: int = 0


def exported(function: OfPoint, arrays: Sequence[Array], dim: int, dtype: Any) -> Program:
    """The program of a function at points of this length."""
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
    traced = jax.make_jaxpr(function)(shapes, jax.ShapeDtypeStruct((dim,), dtype))
    # See `over_points`, which does not see what is inside a stored program.
    work = operations(traced.jaxpr)
    at_once = max(1, int((INLINE - 1) / work)) if work else 0

    def many(*given: Array) -> tuple[Array, ...]:
        return jax.vmap(functools.partial(function, given[:-1]))(given[-1])

    (points,) = export.symbolic_shape("draws")
    arguments = *shapes, jax.ShapeDtypeStruct((points, dim), dtype)
    for devices in (DEVICES, (jax.default_backend(),)):
        try:
            with _without_places():
                found = export.export(jax.jit(many), platforms=devices)(*arguments)  # noqa: TID251
            return Program(bytes(found.serialize()) if _harmless(found) else None, at_once)
        # Whatever a model does that cannot be exported: a callback, a shape that depends on draws.
        except Exception:
            continue
    return Program(None, at_once)


@functools.lru_cache(maxsize=16)
def function_of(program: Program) -> OfPoint:
    """The function of one point; `jax.vmap` of it is the program at several points."""
    assert program.content is not None
    try:
        found = export.deserialize(bytearray(program.content))
        harmless = _harmless(found)
    except Exception as error:
        raise ValueError(f"jax {jax.__version__} cannot read a program of the file ({error})") from error
    if not harmless:
        raise ValueError("the file has a program with calls out of it that quietgrad does not write")
    at_once = program.at_once

    @custom_vmap
    def many(arrays: tuple[Array, ...], points: Float[Array, "points dim"]) -> tuple[Array, ...]:
        size = points.shape[0]
        if not at_once or size <= at_once:
            return tuple(found.call(*arrays, points))
        block = largest_divisor(size, at_once)
        blocks = points.reshape(size // block, block, -1)
        parts = jax.lax.map(lambda some: tuple(found.call(*arrays, some)), blocks)
        return tuple(part.reshape(size, *part.shape[2:]) for part in parts)

    @many.def_vmap
    def more(size: int, batched: Any, arrays: tuple[Array, ...], points: Array) -> Any:
        if any(batched[0]):
            # Several functions at once, for which there is no program: one after the other.
            def wide(x: Array, has: bool) -> Array:  # noqa: FBT001
                return x if has else jnp.broadcast_to(x, (size, *x.shape))

            every = jax.tree.map(wide, (arrays, points), (tuple(batched[0]), batched[1]))
            leaves = jax.lax.map(lambda one: many(*one), every)
        else:
            leaves = many(arrays, points.reshape(-1, points.shape[-1]))
            leaves = tuple(leaf.reshape(*points.shape[:2], *leaf.shape[1:]) for leaf in leaves)
        return leaves, tuple(True for _ in leaves)

    @jax.custom_jvp
    def call(arrays: tuple[Array, ...], point: Float[Array, " dim"]) -> tuple[Array, ...]:
        return tuple(leaf[0] for leaf in many(arrays, point[None]))

    @call.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        del primals, tangents
        raise ValueError(NO_DERIVATIVES)

    return call


@contextlib.contextmanager
def _without_places() -> Iterator[None]:
    """Programs say where in the user's files each operation stands. A file to share does not."""
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _harmless(found: export.Exported) -> bool:
    calls = re.findall(r"custom_call @(?:\"([^\"]+)\"|([\w.$]+))", found.mlir_module())
    return all(HARMLESS.fullmatch(quoted or plain) for quoted, plain in calls)
