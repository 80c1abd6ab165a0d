"""LAPACK and BLAS on the CPU: many small calls without a deadlock, and without threads that wait.

jaxlib shares out a batch of Cholesky factors, triangular solves and the like over XLA's threads, and the
caller waits. It may itself run on one of these threads. Once every thread waits, none is left to do the
work and the program never returns: on two cores, two calls that do not need each other suffice (jaxlib
0.10). A batch below `INLINE` operations, or of one matrix, is done by the caller itself. So a function
with such calls is mapped in blocks of points whose batches are that small (`over_points`), and small
matrices are solved and inverted in such blocks, however often they are under `jax.vmap`. Those solvers
cannot be differentiated in reverse: weights are held fixed. A large batch of matrices at one point is
beyond this.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np  # noqa: F401 - its library must be loaded before the controller looks
import scipy.linalg  # noqa: F401
from jax.custom_batching import custom_vmap
from jax.extend import core
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float, PyTree, Shaped
from threadpoolctl import ThreadpoolController

# jaxlib's own limit, in its own count of the operations of a call (`lapack_kernels.cc`).
INLINE = 200_000
# Calls that are shared out. Those of the first kind count rows x columns x side; the others make several
# passes over a matrix, and one point at a time is the safe choice for them.
CUBIC = {"cholesky", "lu", "triangular_solve"}
OTHERS = {
    "eig",
    "eigh",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "ormqr",
    "qr",
    "schur",
    "svd",
    "tridiagonal",
    "tridiagonal_solve",
}


def over_points(
    f: Callable[[Any], PyTree],
    x: Shaped[Array, "points ..."],
    *,
    at_once: int | None = None,
    shared: bool = False,
) -> PyTree:
    """`jax.vmap(f)(x)`, in blocks of at most `at_once` points; fewer where `f` calls LAPACK.

    `f` is traced once. `shared` says that devices share out the points, which are then not divided.
    """
    point = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    traced, out = jax.make_jaxpr(f, return_shape=True)(point)
    replay, form = core.jaxpr_as_fun(traced), jax.tree.structure(out)

    def again(point: Array) -> PyTree:
        return jax.tree.unflatten(form, replay(point))

    count = x.shape[0]
    if not shared and jax.default_backend() == "cpu":
        work = operations(traced.jaxpr)
        if work * min(count, at_once or count) >= INLINE:
            # A remainder would be a second copy of the model in the program.
            block = largest_divisor(count, max(1, int((INLINE - 1) / work)))
            return jax.lax.map(again, x, batch_size=block if block > 1 else None)
    if at_once is None or at_once >= count:
        return jax.vmap(again)(x)
    return jax.lax.map(again, x, batch_size=at_once)


def operations(jaxpr: Any) -> float:
    """Operations of the largest LAPACK call, a batch within it included; zero if there is none."""
    return max((_cost(equation) for equation in _equations(jaxpr)), default=0.0)


def largest_divisor(count: int, most: int) -> int:
    """The largest divisor of `count` up to `most`."""
    return next(k for k in range(min(count, most), 0, -1) if count % k == 0)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Those of the program and of all programs within it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from _equations(getattr(value, "jaxpr", value))


def _is_program(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _cost(equation: Any) -> float:
    name = equation.primitive.name
    if name in OTHERS:
        return math.inf
    if name not in CUBIC:
        return 0.0
    *batch, rows, columns = equation.invars[-1].aval.shape
    # The side of the matrix of a solve is that of its first argument; the second has right-hand sides.
    side = equation.invars[0].aval.shape[-1] if name == "triangular_solve" else min(rows, columns)
    three_times = equation.invars[-1].aval.dtype.kind == "c"
    return float(math.prod(batch) * rows * columns * side * (3 if three_times else 1))


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the BLAS libraries of NumPy and SciPy to one thread, for the time of a call.

    The matrices of a fit are small. On a machine that also does other work, OpenBLAS's threads wait for
    each other, which makes products of small matrices ten times slower.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


def solve_positive(matrix: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """matrix^-1 right by Cholesky, for a positive definite matrix."""
    n, m = right.shape
    return _alone(_solve, n * n * max(n, m))(matrix, right)


def pseudo_inverse(
    matrix: Float[Array, "n m"], *, hermitian: bool = False, rtol: float | None = None
) -> Float[Array, "m n"]:
    """The pseudo-inverse; singular values below `rtol` times the largest count as zero."""
    return _alone(functools.partial(jnp.linalg.pinv, rtol=rtol, hermitian=hermitian), INLINE)(matrix)


def solve_root(matrix: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n both"]:
    """[R, R^-1 right] with R the lower Cholesky factor of `matrix`, side by side."""
    n, m = right.shape
    return _alone(_solve_root, n * n * max(n, m))(matrix, right)


def _solve(matrix: Array, right: Array) -> Array:
    return cho_solve(cho_factor(matrix, lower=True), right)


def _solve_root(matrix: Array, right: Array) -> Array:
    root = jnp.linalg.cholesky(matrix)
    return jnp.concatenate([root, solve_triangular(root, right, lower=True)], axis=1)


def _alone(f: Callable[..., Array], operations: int) -> Callable[..., Array]:
    """`f` of single matrices; batches of it are cut into blocks of fewer than `INLINE` operations."""
    if jax.default_backend() != "cpu":
        return f
    block = max(1, (INLINE - 1) // operations)

    @custom_vmap
    def many(*matrices: Array) -> Array:
        count = matrices[0].shape[0]
        if count == 1:
            return f(*(x[0] for x in matrices))[None]
        # Sets of a block are one call, and blocks follow each other.
        return jax.lax.map(lambda x: f(*x), matrices, batch_size=block if block > 1 else None)

    @many.def_vmap
    def _(size: int, batched: list[bool], *matrices: Array) -> tuple[Array, bool]:
        spread = (
            x if is_batched else jnp.broadcast_to(x[None], (size, *x.shape))
            for x, is_batched in zip(matrices, batched, strict=True)
        )
        merged = [x.reshape((-1, *x.shape[2:])) for x in spread]
        out = many(*merged)
        return out.reshape((size, -1, *out.shape[1:])), True

    return lambda *matrices: many(*(x[None] for x in matrices))[0]
