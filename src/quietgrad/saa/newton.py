"""Newton's way to a Gaussian with correlations: fit the family to the target's expected quadratic.

Around z0, the mean of q, the target is replaced by the quadratic that has its gradient g and its Hessian
H on average over q. The ELBO of a quadratic is known in closed form,
    g'm + m'Hm/2 + tr(H Cov)/2 + entropy,    m = E z - z0,
so L-BFGS finds its best member of the family without drawing anything. A fixed point is a stationary
point of the ELBO itself. Fresh draws give g and H each time; H is averaged over the iterations and g is
shrunk alike, or their noise would go on for ever. Other fresh draws judge.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from ..families import AbstractFamily, HasEntropy, HasMoments, MeanField
from ..loop import Monitor
from ..metrics import elbo_terms
from ..results import History
from ..samplers import Antithetic, Rqmc
from ..targets import Target
from .climb import Climbed, paired, value_of
from .lbfgs import begin, descend

# A dense Hessian, and as many of its products as there are dimensions, are for these at most.
MOST_DIM = 1000
# Products of the Hessian at a draw with a vector that an iteration may take: a first round of auto's
# finish evaluates as many gradients.
PRODUCTS = 16_000
LEAST_DRAWS, MOST_DRAWS, CHECK_DRAWS = 16, 64, 128
MOST_ITERATIONS, SOLVER_ITERATIONS, MEMORY = 12, 60, 20
# Likelihood values (draws x rows) whose linearisation is held at once.
LIKELIHOODS = 2**20
# An iteration that gains less than this many nats ends it.
GAIN = 0.25


def suits(target: Target, q: AbstractFamily) -> bool:
    """Whether the family has correlations to find, and the target a Hessian that can be had."""
    known = isinstance(q, HasMoments) and isinstance(q, HasEntropy)
    if not known or isinstance(q, MeanField) or q.dim > MOST_DIM or not q.base.variance < float("inf"):
        return False
    try:
        eqx.filter_eval_shape(_expansion, target, q, jnp.zeros((2, q.base_dim), q.dtype))
    except (TypeError, ValueError, NotImplementedError):  # what JAX raises where no rule is known
        return False
    return True


def newton(
    target: Target,
    q: AbstractFamily,
    monitor: Monitor | None,
    history: History,
    *,
    first: int = 0,
    most_iterations: int = MOST_ITERATIONS,
    seconds: float = float("inf"),
    key: Key[Array, ""],
) -> Climbed:
    """Iterate until fresh draws see no gain, or a limit; the history is written to from step `first`."""
    key_draws, key_check = jr.split(key)
    judges = Antithetic().draw(None, q.base, (CHECK_DRAWS, q.base_dim), q.dtype, key=key_check)
    sums = jnp.zeros((q.dim, q.dim), q.dtype)
    began = time.perf_counter()
    best_terms = elbo_terms(target, q, judges)
    jax.block_until_ready(_iterate(target, q, sums, _number(1), _number(0), key_draws))
    compile_seconds = time.perf_counter() - began

    best, spent, done, gain = q, 0.0, 0, float("inf")
    while done < most_iterations and spent < seconds and gain > GAIN:
        began, done = time.perf_counter(), done + 1
        q, sums = _iterate(target, q, sums, _number(done), _number(SOLVER_ITERATIONS), key_draws)
        terms = elbo_terms(target, q, judges)
        gain, _ = paired(terms, best_terms)
        took = time.perf_counter() - began
        spent += took
        if gain > 0:
            best, best_terms = q, terms
        more = {} if monitor is None else monitor(best, None, first + done)
        history.add(first + done, took, {**value_of(best_terms), **more})
    return Climbed(best, done, compile_seconds)


def _number(value: int) -> Int[Array, ""]:
    return jnp.asarray(value, jnp.int32)


@eqx.filter_jit
def _iterate(
    target: Target,
    q: AbstractFamily,
    sums: Float[Array, "dim dim"],
    count: Int[Array, ""],
    iterations: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[AbstractFamily, Float[Array, "dim dim"]]:
    """The `count`-th step, and the sum of the Hessians so far."""
    gradient, hessian = _expansion(target, q, _draws(q, jr.fold_in(key, count)))
    sums, weight = sums + hessian, 1 / count.astype(sums.dtype)
    return _solve(q, weight * gradient, weight * sums, iterations), sums


def _draws(q: AbstractFamily, key: Key[Array, ""]) -> Float[Array, "draws base"]:
    """Spread pairs; fewer where products with the Hessian are many."""
    pairs = max(LEAST_DRAWS, min(MOST_DRAWS, PRODUCTS // q.dim)) // 2
    sampler, shape = Antithetic(Rqmc()), (2 * pairs, q.base_dim)
    if sampler.refuses(2 * pairs, q.base, q.base_dim) is not None:
        sampler = Antithetic()
    return sampler.draw(sampler.init(*shape), q.base, shape, q.dtype, key=key)


def _expansion(
    target: Target, q: AbstractFamily, e: Float[Array, "draws base"]
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Gradient and Hessian of the log density, averaged over the draws; some of them at a time."""
    basis = jnp.eye(q.dim, dtype=q.dtype)

    def slope(z: Float[Array, "some dim"]) -> Float[Array, " dim"]:
        return jnp.sum(jax.vmap(jax.grad(target.log_density))(z), axis=0)

    def add(sums: tuple[Array, Array], e: Float[Array, "some base"]) -> tuple[Any, None]:
        z = jax.vmap(q.transport)(e)
        gradient, push = jax.linearize(slope, z)
        hessian = jax.lax.map(lambda v: push(jnp.broadcast_to(v, z.shape)), basis)
        return (sums[0] + gradient, sums[1] + hessian), None

    parts = e.reshape(-1, _at_once(target, e.shape[0]), q.base_dim)
    (gradient, hessian), _ = jax.lax.scan(add, (jnp.zeros_like(basis[0]), jnp.zeros_like(basis)), parts)
    return gradient / e.shape[0], (hessian + hessian.T) / (2 * e.shape[0])


def _at_once(target: Target, draws: int) -> int:
    """A divisor of the draws such that rows times draws stay bounded."""
    most = max(1, LIKELIHOODS // max(1, target.rows))
    return next(n for n in range(min(draws, most), 0, -1) if draws % n == 0)


def _solve(
    q: AbstractFamily,
    gradient: Float[Array, " dim"],
    hessian: Float[Array, "dim dim"],
    iterations: Int[Array, ""],
) -> AbstractFamily:
    """The member of the family that the quadratic around the mean of `q` suits best."""
    assert isinstance(q, HasMoments)
    params, static = eqx.partition(q, eqx.is_inexact_array)
    center = q.mean()

    def loss(params: PyTree) -> Float[Array, ""]:
        return -quadratic_elbo(eqx.combine(params, static), center, gradient, hessian)

    return eqx.combine(descend(loss, begin(params, MEMORY), iterations, MEMORY).params, static)


def quadratic_elbo(
    q: AbstractFamily,
    center: Float[Array, " dim"],
    gradient: Float[Array, " dim"],
    hessian: Float[Array, "dim dim"],
) -> Float[Array, ""]:
    """The ELBO of g'(z - z0) + (z - z0)'H(z - z0)/2."""
    assert isinstance(q, HasMoments)
    assert isinstance(q, HasEntropy)
    m = q.mean() - center
    spread = q.covariance_trace(lambda rows: rows @ hessian, jnp.diagonal(hessian))
    return gradient @ m + 0.5 * (m @ hessian @ m + spread) + q.entropy()
