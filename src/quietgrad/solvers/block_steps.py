"""Newton steps of structured Gaussians by block elimination: O(n) a step, whatever the dimension.

The ELBO of a Gaussian with mean m is stationary where E grad f = 0 and its precision is -E Hess f in the
entries that the family has (Opper & Archambeau 2009). A target with the structure's independence has no
others, so the steps of `methods.newton` are exact here too: m <- m + rho P^-1 g and
P <- (1 - rho) P - rho H with averages g and H over q's draws. A Hessian costs k + b products a draw, or
k + 3b in a chain (`structure.product_count`).

Hessians are taken in the coordinates of q's own scales, W = -B'HB with B = q.basis(): around an optimum
W is near one whatever the scales of the target, in single precision too. Everything but `decrement` is a
pure function of arrays that can be compiled.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._util.compiling import program
from ..diagnostics.expected_gain import paired_square
from ..evaluation.elbo_terms import Difference
from ..families import AbstractStructured
from ..structure import BlockMatrix, BlockRoot, root_of_inverse
from ..structure import small_matrices as small
from ..structure.hessian import blocks_from_products, probes

# Curvature in q's own coordinates counts as positive from here on: a step widens no scale more than
# thirtyfold, and at an optimum, where it is one, the bound is far.
LEAST_CURVATURE = 1e-3
# Hessian products of a draw that are taken together.
AT_ONCE = 16

LogDensity = Callable[[Float[Array, " dim"]], Float[Array, ""]]


class Averages(NamedTuple):
    """Averages over draws of q: the target's gradient, and its Hessian in the basis of q."""

    gradient: Float[Array, " dim"]
    hessian: BlockMatrix


class Curvature(eqx.Module):
    """A running average of minus the Hessian, `matrix`, in the coordinates of `basis`."""

    basis: BlockRoot
    matrix: BlockMatrix

    def seen_from(self, basis: BlockRoot) -> BlockMatrix:
        """The same in the coordinates of another basis, through the short way between the two."""
        return self.matrix.in_basis(_from_to(self.basis, basis))


class Step(NamedTuple):
    """The next q, the curvature that led to it, and by how much that was changed to be positive."""

    q: AbstractStructured
    curvature: Curvature
    clipped: Float[Array, ""]


def averages(
    log_density: LogDensity,
    q: AbstractStructured,
    many: Float[Array, "draws base"],
    some: Float[Array, "fewer base"],
) -> Averages:
    """The gradient over `many` draws, the Hessian over `some`: one draw after the other."""
    dtype, basis = np.dtype(q.dtype), q.basis()
    directions = probes(q.structure, dtype, basis)

    def products(total: Array, e: Float[Array, " base"]) -> tuple[Array, None]:
        _, push = jax.linearize(jax.grad(log_density), q.transport(e))
        return total + jax.lax.map(push, directions, batch_size=AT_ONCE), None

    total, _ = jax.lax.scan(products, jnp.zeros_like(directions), some)
    hessian = blocks_from_products(q.structure, total / some.shape[0], basis)
    return Averages(jnp.mean(slopes(log_density, q, many), axis=0), hessian)


def slopes(
    log_density: LogDensity, q: AbstractStructured, e: Float[Array, "draws base"]
) -> Float[Array, "draws dim"]:
    """The target's gradient where q carries each draw."""
    return jax.lax.map(lambda e: jax.grad(log_density)(q.transport(e)), e, batch_size=AT_ONCE)


def own_curvature(q: AbstractStructured) -> Curvature:
    """The precision of q itself: where a first step that is a short one starts from."""
    basis, (k, b, n) = q.basis(), (q.structure.k, q.structure.b, q.structure.n)
    corner, own = jnp.eye(k, dtype=q.dtype), small.identity(b, n, q.loc)
    transition, below = q.root().transition, None
    if transition is not None:
        # In these coordinates u_i = A_i u_{i-1} + e_i.
        tie = small.product(transition, basis.diagonal[:, :, :-1])
        tie = small.solve_lower(basis.diagonal[:, :, 1:], tie)
        own = own + small.before_last(small.product(small.transpose(tie), tie))
        below = -tie
    matrix = BlockMatrix(corner, jnp.zeros((b, k, n), q.dtype), own, below)
    return Curvature(basis, jax.tree.map(lambda x: x / q.base.variance, matrix))


def newton_step(
    q: AbstractStructured,
    found: Averages,
    before: Curvature | None = None,
    rho: float | Float[Array, ""] = 1.0,
) -> Step:
    """The member after a step of length rho: the family's best one for the averaged quadratic.

    Without `before`, or with rho = 1, the curvature is that of these draws alone. Exact in one full step
    if the log density is quadratic and has the structure.
    """
    basis = q.basis()
    matrix = jax.tree.map(jnp.negative, found.hessian)
    if before is not None:
        earlier = before.seen_from(basis)
        matrix = jax.tree.map(lambda new, old: rho * new + (1 - rho) * old, matrix, earlier)
    root, clipped = root_of_inverse(matrix, LEAST_CURVATURE)
    # B W^-1 B'g.
    pulled = basis.transposed_times(q.structure.split(found.gradient))
    move = q.structure.join(*basis.times(root.times(root.transposed_times(pulled))))
    unit = 1 / q.base.variance**0.5
    own = _after(basis, root)
    own = BlockRoot(own.corner * unit, own.border * unit, own.diagonal * unit, own.transition)
    return Step(q.with_root(q.mean() + rho * move, own), Curvature(basis, matrix), clipped)


def gain_vector(
    q: AbstractStructured,
    e: Float[Array, "draws base"],
    slope: Float[Array, "draws dim"],
    curvature: Curvature | None = None,
) -> Float[Array, " parameters"]:
    """A vector whose squared length is twice what a Newton step would gain, from one group of draws.

    By the location in the metric of the curvature, or of q's own covariance if there is none; by scales
    in q's metric. O(n) long. The score of q is subtracted, so there is no noise where q is right.
    """
    score = jax.vmap(lambda e: q.transport_and_score(e)[2])(e)
    mean = jnp.mean(slope - score, axis=0)
    if curvature is None:
        location = q.whitened(mean)
    else:
        root = root_of_inverse(curvature.matrix, LEAST_CURVATURE).root
        pulled = curvature.basis.transposed_times(q.structure.split(mean))
        location = q.structure.join(*root.transposed_times(pulled))
    return jnp.concatenate([location, q.scale_gradient(e, slope)])


def decrement(
    log_density: LogDensity,
    q: AbstractStructured,
    e: Float[Array, "groups draws base"],
    curvature: Curvature | None = None,
) -> Difference:
    """Nats that a Newton step would gain, with a standard error, from independent groups of draws.

    `diagnostics.expected_gain` in O(n). Unbiased: noise of the draws does not count as gain.
    """
    groups = _gain_vectors(log_density, q, e, curvature)
    return paired_square(np.asarray(groups, float))


@program
def _gain_vectors(
    log_density: LogDensity,
    q: AbstractStructured,
    e: Float[Array, "groups draws base"],
    curvature: Curvature | None,
) -> Float[Array, "groups parameters"]:
    return jax.lax.map(lambda e: gain_vector(q, e, slopes(log_density, q, e), curvature), e)


def _after(basis: BlockRoot, root: BlockRoot) -> BlockRoot:
    """B R for a basis B, which has no transitions: again a root of this kind.

    With u = R e and z = B u: z_i = C_i u_g + D_i u_i, so that z_i - C_i u_g follows the block before by
    D_i A_i D_{i-1}^-1.
    """
    corner = basis.corner @ root.corner
    shared = jnp.einsum("bkn,kj->bjn", basis.border, root.corner)
    border = small.product(basis.diagonal, root.border) + shared
    transition = root.transition
    if transition is not None:
        transition = small.product(basis.diagonal[:, :, 1:], transition)
        turned = small.solve_lower(
            basis.diagonal[:, :, :-1], small.transpose(transition), transposed=True
        )
        transition = small.transpose(turned)
        border = border - small.after_first(small.product(transition, shared[:, :, :-1]))
    return BlockRoot(corner, border, small.product(basis.diagonal, root.diagonal), transition)


def _from_to(first: BlockRoot, second: BlockRoot) -> BlockRoot:
    """B^-1 C for two bases without transitions."""
    corner = second.corner
    if corner.size:
        corner = jax.scipy.linalg.solve_triangular(first.corner, corner, lower=True)
    border = second.border - jnp.einsum("bkn,kj->bjn", first.border, corner)
    border = small.solve_lower(first.diagonal, border)
    return BlockRoot(corner, border, small.solve_lower(first.diagonal, second.diagonal))
