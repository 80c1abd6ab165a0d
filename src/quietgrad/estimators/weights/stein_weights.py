"""Stein weights for any sampled expectation: draws and the scores there are all that is needed.

For a density p with score s = grad log p, the Stein operator makes functions c_j with E_p c_j = 0.
Taking what they explain of g away from its mean leaves a weighted mean, E_p g ~ sum_l w_l g(x_l), whose
weights depend on draws and scores alone. So one set of weights serves every g, and a gradient of an
expectation is one backward pass of sum_l w_l g_l.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._util.checks import part
from ..._util.compiling import program
from .designs import AbstractDesign, ColumnDesign, GramDesign
from .ensemble import deal
from .folds import REGISTRY as FOLDS
from .folds import AbstractFolds
from .kernels import REGISTRY as KERNELS
from .kernels import AbstractKernel, HasColumns, Polynomial
from .scaling import SCALINGS, Scaling, scaled
from .solvers import REGISTRY as GRAM_SOLVERS
from .solvers import AbstractGramSolver, Ridge

# Of the mean diagonal of the Gram matrix. Small enough that a fit with more draws than columns is hardly
# shrunk, and large enough for Cholesky in single precision.
PENALTY = 1e-3


def stein_weights(
    points: Float[Array, "..."] | Float[np.ndarray, "..."],
    scores: Float[Array, "..."] | Float[np.ndarray, "..."],
    *,
    kernel: AbstractKernel | str = "polynomial",
    order: int = 1,
    solver: AbstractGramSolver | str | None = None,
    folds: AbstractFolds | str = "in-sample",
    scaling: Scaling | str = "none",
    group: int | None = None,
) -> Float[Array, "*sets draws"]:
    """Weights w, summing to one, with sum_l w_l g(x_l) an estimate of E_p g for whatever g.

    No gradient flows through w. Weights can be negative.

    Args:
        points: (draws, dim), draws of p, or of a chain on its way there. Leading axes are independent
            sets of draws, weighted side by side.
        scores: the gradients of log p at the points.
        kernel: "polynomial" (zero-variance control variates: with scores t the columns are t_j, and for
            order 2 also 2 + 2 x_j t_j and x_i t_j + x_j t_i), "gaussian" (control functionals), or a
            kernel.
        order: of the polynomials, 1 or 2. For a Gaussian p, order 1 integrates linear functions exactly
            and order 2 quadratic ones, wherever the points lie, if there are more of them than columns
            (but for the penalty).
        solver: "least-squares", "gd", or "ridge"; None is ridge with a penalty of 0.001 of the Gram
            matrix's mean diagonal (`Ridge(1e-2)` for another). In-sample ridge has w proportional to
            (G + penalty I)^-1 1.
        folds: which draws a fit sees. "in-sample" has the least variance and a bias of the order of
            columns over draws; it also takes away much of the bias of draws that are not yet from p.
            "k-fold" and "leave-one-out" are unbiased if the draws are independent draws of p and
            `scaling` is "none". For draws of k chains, one after the other, `KFold(k)` fits each chain's
            coefficients on the others: unbiased for independent chains that are stationary, as the
            plain mean is.
        scaling: coordinates for the kernel: "none" as given, "diagonal" by standard deviations, "whiten"
            by a factor of the covariance (needs more draws than dimensions). Penalties and lengths
            presume that coordinates vary by about one; fits without a penalty do not change.
        group: an ensemble of small fits, each on this many coordinates, whose weights are averaged
            (after Geffner & Domke 2018): for more coordinates than draws.

    Costs no evaluation of p. With L draws and J columns, O(L J^2 + J^3) where J < L, and otherwise
    O(L^2 d + L^3); leave-one-out is L fits.
    """
    points, scores = jnp.asarray(points), jnp.asarray(scores)
    parts = _parts(kernel, order, solver, folds)
    _check(points, scores, parts[2], scaling)
    return _weigh(parts, scaling, group, points, scores)


@program
def _weigh(
    parts: tuple[AbstractKernel, AbstractGramSolver, AbstractFolds],
    scaling: str,
    group: int | None,
    points: Float[Array, "*sets draws dim"],
    scores: Float[Array, "*sets draws dim"],
) -> Float[Array, "*sets draws"]:
    """One program of all operations, which are many and small."""
    weigh = functools.partial(_weights, *parts, scaling=scaling, group=group)
    batch = points.shape[:-2]
    flat = (x.reshape((-1, *x.shape[-2:])) for x in (points, scores))
    w = jax.vmap(weigh)(*flat) if batch else weigh(points, scores)
    return jax.lax.stop_gradient(w.reshape((*batch, points.shape[-2])))


def design_of(
    kernel: AbstractKernel, points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"]
) -> AbstractDesign:
    """The columns where they are fewer than the draws, else the Gram matrix."""
    draws, dim = points.shape
    if isinstance(kernel, HasColumns) and kernel.column_count(dim) < draws:
        return ColumnDesign(kernel.columns(points, scores))
    return GramDesign(kernel.gram(points, scores))


def _weights(
    kernel: AbstractKernel,
    solver: AbstractGramSolver,
    folds: AbstractFolds,
    points: Float[Array, "draws dim"],
    scores: Float[Array, "draws dim"],
    *,
    scaling: str,
    group: int | None,
) -> Float[Array, " draws"]:
    # A fit of the weights' own: nothing of it is differentiated.
    points, scores = jax.lax.stop_gradient((points, scores))
    points, scores = scaled(points, scores, scaling)

    def of(points: Float[Array, "draws some"], scores: Float[Array, "draws some"]) -> Array:
        return folds.weights(design_of(kernel, points, scores), solver)

    if group is None:
        return of(points, scores)
    hands = deal(points.shape[1], group)
    small = jax.vmap(of, in_axes=1)(points[:, hands], scores[:, hands])
    return jnp.mean(small, axis=0)


def _parts(
    kernel: AbstractKernel | str, order: int, solver: AbstractGramSolver | str | None, folds: Any
) -> tuple[AbstractKernel, AbstractGramSolver, AbstractFolds]:
    if kernel == "polynomial":
        kernel = Polynomial(order)
    elif order != 1:
        raise ValueError(f'order={order} is for kernel="polynomial"; got kernel={kernel!r}')
    return (
        part(kernel, KERNELS, AbstractKernel, "kernel"),  # pyright: ignore[reportArgumentType]
        Ridge(PENALTY)
        if solver is None or solver == "ridge"
        else part(solver, GRAM_SOLVERS, AbstractGramSolver, "solver"),
        part(folds, FOLDS, AbstractFolds, "folds"),
    )


def _check(points: Array, scores: Array, folds: AbstractFolds, scaling: str) -> None:
    shapes = points.shape, scores.shape
    if shapes[0] != shapes[1] or len(shapes[0]) < 2:
        raise ValueError(
            "points and scores must both have the shape (draws, dim), or (sets, draws, dim) for several "
            f"expectations at once; got {shapes[0]} and {shapes[1]}"
        )
    draws, dim = shapes[0][-2:]
    if draws < 2:
        raise ValueError(f"weights need at least 2 draws; got {draws}")
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}; got {scaling!r}")
    if scaling == "whiten" and draws <= dim:
        raise ValueError(
            f'scaling="whiten" needs more draws than dimensions; got {draws} draws in {dim} dimensions. '
            'Use scaling="diagonal"'
        )
    refusal = folds.refuses(draws)
    if refusal is not None:
        raise ValueError(refusal)
