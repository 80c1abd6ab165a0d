"""What is left of a target in a file: names, labels, and the map to the user's scale as a program.

The map z -> variables is exported by `jax.export`: a StableHLO program, which later versions of jax run
on any device. The density is not stored, and neither are data, except for those that the map itself uses
(a deterministic variable x @ beta has x in it).
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import export
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Key, PyTree

from .._numerics.lapack import INLINE, largest_divisor, operations
from .named_model import AbstractNamedModel
from .target import Target

NEEDS_MODEL = (
    "this result was loaded from a file, which has no model; loaded.with_target(target) is the same "
    "result with the model and data that were fitted"
)
NO_MAP = (
    "the file has no map from q's draws to the model's variables, or none that can be used here; "
    "loaded.q.sample(key, draws) gives draws on the unconstrained scale, and "
    "loaded.with_target(target).sample(key) those of the model"
)
# Devices that the program is made for. Where one of them cannot run it, it is for this device alone.
DEVICES = ("cpu", "cuda", "rocm", "tpu")
# Calls out of the program that are known to compute and nothing else: linear algebra, FFTs, checks of
# shapes. Any other one, a call back to Python above all, is neither written nor run.
HARMLESS = re.compile(
    r"lapack_\w+|cusolver_\w+|cublas_\w+|hipsolver_\w+|hipblas_\w+|cu_lu_\w+|ducc_fft|dynamic_ducc_fft|"
    r"shape_assertion|stablehlo\.\w+|chlo\.\w+|mhlo\.\w+|Sharding|Qr|Eigh|LuDecomposition|TopK|"
    r"ProductOfElementaryHouseholderReflectors|ApproxTopK|\w*threefry2x32\w*"
)


@dataclasses.dataclass(frozen=True, eq=False)
class About:
    """What a file says of the model.

    `form` is the structure of a point on the user's scale, with numbers in place of arrays; None is a
    vector. `program` makes these arrays of draws, if it could be exported, for at most `at_once` draws
    if that is not zero. `variables`, `dims` and `coords` are those of the model.
    """

    form: PyTree = None
    program: bytes | None = None
    at_once: int = 0
    variables: tuple[str, ...] = ()
    dims: Mapping[str, Sequence[str | None]] = dataclasses.field(default_factory=dict)
    coords: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class StoredModel(AbstractNamedModel):
    """Names, labels and the map to the user's scale; everything else asks for the model."""

    about: About = eqx.field(static=True)

    def constrain(self, point: Float[Array, " dim"]) -> PyTree:
        """By the stored program."""
        if self.about.form is None:
            return point
        if self.about.program is None:
            raise ValueError(NO_MAP)
        leaves = _program(self.about.program, self.about.at_once)(point)
        return jax.tree.map(lambda place: leaves[place], self.about.form)

    def variables(self) -> tuple[str, ...]:
        """As the model said."""
        return self.about.variables

    def log_likelihoods(self, point: PyTree) -> dict[str, Array]:
        """Not without the model."""
        raise ValueError(NEEDS_MODEL)

    def observed(self) -> dict[str, Any]:
        """Data are not stored."""
        return {}

    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """As the model said."""
        return self.about.dims

    def coords(self) -> Mapping[str, Any]:
        """As the model said."""
        return self.about.coords

    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """Not without the model."""
        raise ValueError(NEEDS_MODEL)


def without_density(target: Target) -> bool:
    """Whether the target came from a file, and has names and scales only."""
    return isinstance(target.model, StoredModel)


def stored_target(about: About, dim: int) -> Target:
    """A target with the names and the scale of a model, whose density asks for the model."""
    made = Target(_no_density)
    for name, value in {"dim": dim, "model": StoredModel(about)}.items():
        object.__setattr__(made, name, value)
    return made


def _no_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
    raise ValueError(NEEDS_MODEL)


def about(target: Target, dtype: Any) -> About:
    """What a file can say of a target, for draws of this type."""
    assert target.dim is not None
    model = target.model
    if isinstance(model, StoredModel):
        return model.about
    if model is None and target.unravel is None:
        return About()
    point = jax.ShapeDtypeStruct((target.dim,), dtype)
    traced, out = jax.make_jaxpr(target.constrain, return_shape=True)(point)
    form = jax.tree.unflatten(jax.tree.structure(out), range(len(jax.tree.leaves(out))))
    # See `over_points`, which does not see what is inside a stored program.
    work = operations(traced.jaxpr)
    made = About(form, _exported(target, dtype), at_once=max(1, int((INLINE - 1) / work)) if work else 0)
    if model is None:
        return made
    dims = {name: tuple(axes) for name, axes in model.dims().items()}
    coords = {name: _labels(values) for name, values in model.coords().items()}
    return dataclasses.replace(made, variables=model.variables(), dims=dims, coords=coords)


def _labels(values: Any) -> np.ndarray:
    labels = np.asarray(values)
    return labels.astype(str) if labels.dtype.hasobject else labels


def _exported(target: Target, dtype: Any) -> bytes | None:
    """The map from draws to their arrays, or None where it cannot be exported."""

    def leaves(z: Float[Array, "draws dim"]) -> tuple[Array, ...]:
        return tuple(jax.tree.leaves(jax.vmap(target.constrain)(z)))

    (draws,) = export.symbolic_shape("draws")
    argument = jax.ShapeDtypeStruct((draws, target.dim), dtype)
    for devices in (DEVICES, (jax.default_backend(),)):
        try:
            with _without_places():
                found = export.export(jax.jit(leaves), platforms=devices)(argument)
            return bytes(found.serialize()) if _harmless(found) else None
        # Whatever a model does that cannot be exported: a callback, a shape that depends on draws.
        except Exception:
            continue
    return None


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


@functools.lru_cache(maxsize=8)
def _program(content: bytes, at_once: int) -> Any:
    """The function of one point; at several points it is the program that was stored."""
    try:
        found = export.deserialize(bytearray(content))
        harmless = _harmless(found)
    except Exception as error:
        version = jax.__version__
        raise ValueError(f"jax {version} cannot read the map of the file ({error}). {NO_MAP}") from error
    if not harmless:
        raise ValueError("the file has a program with calls out of it that quietgrad does not write")

    @custom_vmap
    def call(z: Float[Array, " dim"]) -> tuple[Array, ...]:
        return tuple(leaf[0] for leaf in found.call(z[None]))

    @call.def_vmap
    def at_several(size: int, batched: Any, z: Float[Array, "draws dim"]) -> Any:
        del batched
        if not at_once or size <= at_once:
            leaves = tuple(found.call(z))
        else:
            block = largest_divisor(size, at_once)
            parts = jax.lax.map(found.call, z.reshape(size // block, block, -1))
            leaves = tuple(part.reshape(size, *part.shape[2:]) for part in parts)
        return leaves, tuple(True for _ in leaves)

    return call
