"""Solving and inverting small matrices, many at once, without the deadlock of LAPACK batches on the CPU.

jaxlib shares out a large batch of matrices over XLA's threads while the caller, which may be one of
these threads, waits; once all of them wait the program never returns (jaxlib 0.10; two calls that do
not need each other suffice on two cores). Batches below `INLINE` operations, and single matrices, are
done by the caller itself. So `jax.vmap` of what is here, however often, becomes a loop over such blocks.
Nothing here can be differentiated in reverse: weights are held fixed.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float

# jaxlib's own limit, in its own count of the operations of a call (`lapack_kernels.cc`).
INLINE = 200_000


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
