"""Stein weights for the score: the same points, weighted by what Stein's identity says of them.

With t = grad_eps log q(eps | w), the columns t_j (order 1), and also 2 + 2 eps_j t_j and
eps_i t_j + eps_j t_i (order 2), have mean zero under q(eps | w). Weights proportional to
(G + rho I)^-1 1 integrate all of them, and so whatever they span, exactly: for a linear mu and constant
sigma the score itself, which is linear in eps, from k + 1 points wherever they lie. So every point at
which the chain has computed t can be used, those of the burn-in and those on the way of a leapfrog path
included.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...families.semi_implicit import Generator, Proposal
from ..weights import AbstractGramSolver, AbstractKernel, Polynomial, Ridge, stein_weights
from .chain import AbstractChainScore, HmcChain, Trajectory
from .score import AbstractScore

# Order 2 where its columns are at most this share of the points: more of them fit noise.
SHARE = 0.5


class Weighting(eqx.Module):
    """How points and reverse scores become weights; see `stein_weights`.

    `order=None` is 2 where its k (k + 3)/2 columns are at most half of the points, else 1; draws of the
    trained q were worse with it in two dimensions, although errors of single scores were smaller.
    In-sample ridge with a penalty of 1e-3 of the Gram matrix's mean diagonal: points on a path are no
    independent draws of q(eps | w), for which cross-fitting would be unbiased. eps is normal a priori,
    so that its own scale suits the penalty; order 2 is worse by factors if eps is scaled by its points.
    """

    kernel: AbstractKernel | str = "polynomial"
    order: int | None = eqx.field(static=True, default=1)
    solver: AbstractGramSolver = eqx.field(default_factory=lambda: Ridge(1e-3))
    scaling: str = eqx.field(static=True, default="none")

    def score(
        self,
        generator: Generator,
        w: Float[Array, " dim"],
        eps: Float[Array, "points mixing"],
        t: Float[Array, "points mixing"],
    ) -> Float[Array, " dim"]:
        """The weighted mean of the conditional scores."""
        order = self.order
        if order is None:
            few = Polynomial(2).column_count(eps.shape[1]) <= SHARE * eps.shape[0]
            order = 2 if few and self.kernel == "polynomial" else 1
        weights = stein_weights(
            eps, t, kernel=self.kernel, order=order, solver=self.solver, scaling=self.scaling
        )
        return weights @ jax.vmap(lambda x: generator.conditional_score(w, x))(eps)


class SteinChain(AbstractChainScore):
    """Stein weights for the points of the chain of `ChainMean`: all of them, or its states alone.

    Biased by the order of columns over points where the score is not in their span; exact where it is.
    Costs no gradient beyond the chain's, and a solve in the smaller of columns and points.
    """

    chain: HmcChain = HmcChain()
    weighting: Weighting = eqx.field(default_factory=Weighting)
    all_points: bool = eqx.field(static=True, default=True)

    @property
    def biased(self) -> bool:
        """In-sample weights are."""
        return True

    def at_one(
        self, generator: Generator, w: Float[Array, " dim"], run: Trajectory
    ) -> Float[Array, " dim"]:
        """The weighted mean over the points."""
        x, t = run.path, run.path_scores
        if not self.all_points:
            x = run.states
            t = jax.vmap(lambda eps: generator.reverse_score(w, eps))(x)
        # Points outside the numbers would spoil all weights; equal ones have none beyond the first.
        good = jnp.all(jnp.isfinite(x) & jnp.isfinite(t), axis=1, keepdims=True)
        x, t = jnp.where(good, x, run.states[-1:]), jnp.where(good, t, 0)
        return self.weighting.score(generator, w, x, t)


class SteinLinearised(AbstractScore):
    """Stein weights for points of N(m, P^-1), the normal at the mode of q(eps | w): no chain.

    `points` gradients, all at once, after `proposal.iterations` + 1 Jacobians of the network.
    Exact where `SteinChain` is; biased elsewhere.
    """

    points: int = eqx.field(static=True, default=32)
    proposal: Proposal = Proposal()
    weighting: Weighting = eqx.field(default_factory=Weighting)

    @property
    def biased(self) -> bool:
        """In-sample weights are."""
        return True

    def gradients(self, mixing: int) -> int:
        """Those at the points, and a Jacobian's passes for each iteration."""
        return self.points + (self.proposal.iterations + 1) * (mixing + 1)

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: None,
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], None]:
        """Pairs of points around the mode."""

        def one(w: Float[Array, " dim"], key: Key[Array, ""]) -> Array:
            half = jr.normal(key, (self.points // 2, eps.shape[1]), w.dtype)
            x = self.proposal.linearised(generator, w).place(jnp.concatenate([half, -half]))
            t = jax.vmap(lambda x: generator.reverse_score(w, x))(x)
            return self.weighting.score(generator, w, x, t)

        return jax.vmap(one)(w, jr.split(key, w.shape[0])), state
