"""Joint control variate for data and draws (Wang, Geffner & Domke 2024): SAGA over surrogates of rows.

With k_n(z) = N log p(x_n | z) and its Taylor expansion f~_n at the mean of q when row n was last seen,
  g = g_B(e) + [E f~_B - f~_B(e)] + [(1/N) sum_m E f~_m - (1/B) sum_{n in B} E f~_n]   (gradients of)
for a batch B. The first bracket takes out the noise of the draws given the rows; its expansion is of the
batch at hand at the present mean, fresher than the stored one, and belongs to the estimator inside. The
second takes out the noise of the rows. Both have mean zero whatever is stored.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from .._util.checks import instance, whole
from ..families import AbstractFamily, HasMoments, split
from ..targets import Target
from .estimator import AbstractEstimator, Estimate

# Rows expanded at once before the first step.
BLOCK = 256


class JointState(NamedTuple):
    """Expansions: slopes grad k_n, and for order 2 the diagonals of their Hessians.

    `mean` is that of `stored` over the rows. It is brought up to date step by step, and taken afresh
    about once an epoch, so that rounding of early, large slopes does not stay; `since` counts the steps.
    """

    inside: PyTree
    stored: Float[Array, "rows order dim"]
    mean: Float[Array, "order dim"]
    since: Int[Array, ""]


class Joint(AbstractEstimator):
    """Takes the noise of minibatches out of another estimator, whose task the noise of the draws is.

    Each step replaces what is stored for the rows it sees. Order 1 stores the rows' slopes at the mean
    of q and corrects the location; order 2 stores the diagonals of their Hessians too and corrects the
    scales of a mean-field family. Exact once filled, for rows with quadratic log likelihoods, if the
    estimator inside is exact for a batch and q stands still; in between, what is stored lags behind q
    by up to an epoch. Storage: rows x dim numbers for order 1, twice that for order 2, at most
    `largest`. Cost of a step: that of the estimator inside and one gradient of each row in the batch;
    for order 2 also dim Hessian products of each. Unbiased for batches of distinct rows drawn uniformly
    at each step; batches cut from a shuffled epoch depend on what is stored, as in SAGA.
    """

    inside: AbstractEstimator
    order: int = eqx.field(static=True)
    largest: int = eqx.field(static=True)

    def __init__(self, inside: AbstractEstimator, *, order: int = 1, largest: int = 2**28):
        instance(inside, AbstractEstimator, "inside")
        self.inside = inside
        if order not in (1, 2):
            raise ValueError(f"order must be 1 (slopes) or 2 (slopes and curvatures); got {order!r}")
        self.order = int(order)
        self.largest = whole(largest, "largest", least=1)

    @property
    def biased(self) -> bool:
        """Whether the estimator inside is."""
        return self.inside.biased

    def draws_for(self, q: AbstractFamily) -> int:
        """Those of the estimator inside."""
        return self.inside.draws_for(q)

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Rows must have likelihoods of their own, q a mean to expand at, and memory must suffice."""
        if target.log_likelihood is None:
            return (
                "the joint control variate remembers every row's likelihood, and this target has no "
                "rows; give it log_likelihood and data, or use the estimator 'quiet'"
            )
        if target.row_numbers is not None:
            return "the joint control variate must be initialised with all rows, and this is a batch"
        if not isinstance(q, HasMoments):
            return f"{type(q).__name__} has no closed-form mean to expand at"
        if self.order == 2 and q.correlated:
            return f"curvatures of rows are for mean-field families, not {type(q).__name__}; use order=1"
        numbers = target.rows * self.order * q.dim
        if numbers > self.largest:
            return (
                f"the joint control variate would store {numbers} numbers ({target.rows} rows x "
                f"{self.order * q.dim}), more than {self.largest}; allow it with "
                f"Joint(..., largest={numbers}), or use the estimator 'quiet' with more rows in a batch"
            )
        return self.inside.refuses(target, q)

    def _init(self, target: Target, q: AbstractFamily) -> JointState:
        inside = self.inside.init(target, q)
        stored = self._expand(target, q).astype(q.dtype)
        return JointState(inside, stored, jnp.mean(stored, axis=0), jnp.zeros((), jnp.int32))

    def step(
        self, target: Target, q: AbstractFamily, state: JointState, *, key: Key[Array, ""]
    ) -> tuple[Estimate, JointState]:
        """A step of the estimator inside, corrected by what is stored before it is replaced."""
        assert isinstance(q, HasMoments)
        estimate, inside = self.inside.step(target, q, state.inside, key=key)
        rows = target.row_numbers
        old = state.stored if rows is None else state.stored[rows]
        gap = state.mean - jnp.mean(old, axis=0)
        grad = eqx.tree_at(lambda p: p.loc, estimate.grad, estimate.grad.loc + gap[0])
        if self.order == 2:
            grad = jax.tree.map(jnp.add, grad, _scale_gradient(q, gap[1]))
        more = q.dim if self.order == 2 else 0
        cost = estimate.cost._replace(
            gradients=estimate.cost.gradients + 1,
            hessian_products=estimate.cost.hessian_products + more,
        )
        after = self._remember(state, rows, old, self._expand(target, q).astype(q.dtype))
        return Estimate(grad, estimate.elbo, estimate.beta, cost), after._replace(inside=inside)

    def _remember(
        self,
        state: JointState,
        rows: Int[Array, " batch"] | None,
        old: Float[Array, "batch order dim"],
        new: Float[Array, "batch order dim"],
    ) -> JointState:
        if rows is None:
            return state._replace(stored=new, mean=jnp.mean(new, axis=0))
        total = state.stored.shape[0]
        # Added, not set: the loop then works in place, where a set would copy all that is stored.
        change = jnp.where(jnp.isfinite(new), new - old, 0)
        stored = state.stored.at[rows].add(change)
        since = (state.since + 1) % max(total // rows.size, 1)
        mean = jax.lax.cond(
            since == 0,
            lambda: jnp.mean(stored, axis=0),
            lambda: state.mean + jnp.sum(change, axis=0) / total,
        )
        return state._replace(stored=stored, mean=mean, since=since)

    def _expand(self, target: Target, q: AbstractFamily) -> Float[Array, "rows order dim"]:
        """The expansions of k_n at the mean of q, for the rows at hand."""
        assert isinstance(q, HasMoments)
        z = q.mean()

        def row(n: Int[Array, ""]) -> Float[Array, "order dim"]:
            # A view of one row: differentiating all rows' values would cost their number squared.
            view = target.batch(n[None])
            slope_of = jax.grad(lambda z: target.size * view.log_likelihoods(z)[0])
            if self.order == 1:
                return slope_of(z)[None]
            slope, product = jax.linearize(slope_of, z)

            def entry(i: Int[Array, ""]) -> Float[Array, ""]:
                return product(jnp.zeros_like(z).at[i].set(1))[i]

            return jnp.stack([slope, jax.lax.map(entry, jnp.arange(z.size))])

        rows = jnp.arange(target.rows)
        return jax.vmap(row)(rows) if rows.size <= BLOCK else jax.lax.map(row, rows, batch_size=BLOCK)


def _scale_gradient(q: AbstractFamily, diagonal: Float[Array, " dim"]) -> PyTree:
    """The gradient of E z'Hz/2 = tr(H Cov z)/2 in the scales, for a Hessian with this diagonal."""
    params, rebuild = split(q)

    def value(params: PyTree) -> Float[Array, ""]:
        moved = rebuild(params)
        assert isinstance(moved, HasMoments)
        return 0.5 * moved.covariance_trace(lambda rows: rows * diagonal[None, :], diagonal)

    return jax.grad(value)(params)
