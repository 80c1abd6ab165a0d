"""Linear algebra of many small matrices, which lie along the last axis: (rows, columns, n).

For blocks of one to some coordinates the loops over rows are written out, so that everything is a
product or a sum of vectors of length n. A batched LAPACK call would take longer for its n calls than
for their arithmetic. Loops of more than `WRITTEN_OUT` rows would be long programs: LAPACK then.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

WRITTEN_OUT = 12

Matrices = Float[Array, "rows columns n"]
Square = Float[Array, "b b n"]


def times(matrices: Matrices, vectors: Float[Array, "columns n"]) -> Float[Array, "rows n"]:
    """M x."""
    return jnp.sum(matrices * vectors[None, :, :], axis=1)


def transposed_times(matrices: Matrices, vectors: Float[Array, "rows n"]) -> Float[Array, "columns n"]:
    """M'x."""
    return jnp.sum(matrices * vectors[:, None, :], axis=0)


def product(
    a: Float[Array, "rows inner n"], b: Float[Array, "inner columns n"]
) -> Float[Array, "rows columns n"]:
    """A B."""
    return jnp.sum(a[:, :, None, :] * b[None, :, :, :], axis=1)


def transpose(a: Float[Array, "rows columns n"]) -> Float[Array, "columns rows n"]:
    """A'."""
    return jnp.swapaxes(a, 0, 1)


# Sums over neighbours add these. `x.at[..., 1:].add(...)` is a scatter, and where updates are made of
# x itself, the CPU program of jaxlib 0.10.2 overwrote it too early: vectorised solves were wrong.
def after_first(x: Float[Array, "*rows before"]) -> Float[Array, "*rows n"]:
    """Zero for the first block, then x."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])


def before_last(x: Float[Array, "*rows before"]) -> Float[Array, "*rows n"]:
    """x, then zero for the last block."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])


def identity(b: int, n: int, like: Float[Array, "..."]) -> Square:
    """n unit matrices in the precision of an array."""
    return jnp.broadcast_to(jnp.eye(b, dtype=like.dtype)[:, :, None], (b, b, n))


def solve_lower(
    root: Square, right: Float[Array, "b columns n"], *, transposed: bool = False
) -> Float[Array, "b columns n"]:
    """L^-1 X for lower triangular L, or L^-T X."""
    b = root.shape[0]
    if b > WRITTEN_OUT:
        solved = jax.lax.linalg.triangular_solve(
            jnp.moveaxis(root, -1, 0),
            jnp.moveaxis(right, -1, 0),
            left_side=True,
            lower=True,
            transpose_a=transposed,
        )
        return jnp.moveaxis(solved, 0, -1)
    matrix = transpose(root) if transposed else root
    rows: dict[int, Float[Array, "columns n"]] = {}
    for j in reversed(range(b)) if transposed else range(b):
        row = right[j]
        for other, known in rows.items():
            row = row - matrix[j, other][None, :] * known
        rows[j] = row / matrix[j, j][None, :]
    return jnp.stack([rows[j] for j in range(b)]) if b else right


def solve_vectors(
    root: Square, right: Float[Array, "b n"], *, transposed: bool = False
) -> Float[Array, "b n"]:
    """L^-1 x, or L^-T x."""
    return solve_lower(root, right[:, None, :], transposed=transposed)[:, 0, :]


def cholesky(matrices: Square) -> Square:
    """The lower triangular roots; NaN where a matrix is not positive definite."""
    b = matrices.shape[0]
    if b > WRITTEN_OUT:
        return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(matrices, -1, 0)), 0, -1)
    entries: dict[tuple[int, int], Float[Array, " n"]] = {}
    for j in range(b):
        for i in range(j, b):
            entry = matrices[i, j]
            for inner in range(j):
                entry = entry - entries[i, inner] * entries[j, inner]
            entries[i, j] = jnp.sqrt(entry) if i == j else entry / entries[j, j]
    return _lower(entries, matrices)


def root_of_inverse(matrices: Square) -> Square:
    """Lower triangular L with LL' = P^-1.

    With the rows and columns reversed P = MM', so that reversing M^-T gives L.
    """
    backwards = cholesky(matrices[::-1, ::-1])
    inverse = solve_lower(backwards, identity(matrices.shape[0], matrices.shape[2], matrices))
    return transpose(inverse)[::-1, ::-1]


def make_positive(matrices: Square, least: float) -> Square:
    """The matrices with their eigenvalues' absolute values, none of them below `least`.

    Where all eigenvalues are at least that, matrices are returned as they are and none is computed.
    """
    b = matrices.shape[0]
    if b == 0 or matrices.shape[2] == 0:
        return matrices
    if b == 1:
        return jnp.maximum(jnp.abs(matrices), least)

    def by_eigenvalues() -> Square:
        values, vectors = jnp.linalg.eigh(jnp.moveaxis(matrices, -1, 0))
        values = jnp.maximum(jnp.abs(values), least)
        return jnp.moveaxis(jnp.einsum("nij,nj,nkj->nik", vectors, values, vectors), 0, -1)

    lowered = matrices - least * identity(b, matrices.shape[2], matrices)
    fine = jnp.all(jnp.isfinite(cholesky(lowered)))
    return jax.lax.cond(fine, lambda: matrices, by_eigenvalues)


def make_dominant(matrices: Square, least: float) -> Square:
    """The matrices that are positive definite as they are, and for others a diagonal one above them.

    Its entries are the sums of the rows' absolute values, and none is below `least`. No LAPACK, so that
    it can be called at many points at once.
    """
    b, n = matrices.shape[0], matrices.shape[2]
    if b == 0 or n == 0:
        return matrices
    if b == 1:
        return jnp.maximum(jnp.abs(matrices), least)
    fine = jnp.all(jnp.isfinite(cholesky(jax.lax.stop_gradient(matrices))), axis=(0, 1))
    sums = jnp.maximum(jnp.sum(jnp.abs(matrices), axis=1), least)
    return jnp.where(fine, matrices, identity(b, n, matrices) * sums[:, None, :])


def _lower(entries: dict[tuple[int, int], Float[Array, " n"]], like: Square) -> Square:
    """Lower triangular matrices from their entries."""
    b = like.shape[0]
    zero = jnp.zeros_like(like[0, 0]) if b else None
    rows = [jnp.stack([entries.get((i, j), zero) for j in range(b)]) for i in range(b)]  # pyright: ignore
    return jnp.stack(rows) if b else like
