"""Gradients for semi-implicit families: sticking the landing with a score that is itself estimated.

    e = (u, eps) -> z -> grad f(z) - s^(z) -> pull back through z

where s^ is an estimate of grad log q, with draws of its own (`scores`). UIVI is this with the mean over
a Hamiltonian chain.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from .._numerics.lapack import over_points
from .._util.checks import part, whole
from ..families import AbstractFamily, SemiImplicit, split
from ..scale.sharding import shared_out
from ..targets import Target
from .estimator import AbstractEstimator, Cost, Estimate
from .scores import REGISTRY, AbstractScore


class SemiImplicitPathwise(AbstractEstimator):
    """Pathwise gradients of a semi-implicit q from `draws` draws, with `score` for grad log q.

    Cost of a step: `draws` gradients of the target, and for each draw `score.gradients` of the network.
    `elbo` is a cheap lower bound, f(z) - log q(z | eps). Biased where the score is, and as far as the
    score depends on the eps that made z.
    """

    score: AbstractScore
    draws: int = eqx.field(static=True)

    def __init__(self, score: AbstractScore | str = "stein-chain", *, draws: int = 16):
        self.score = part(score, REGISTRY, AbstractScore, "score")  # pyright: ignore
        self.draws = whole(draws, "draws", least=1)

    @property
    def biased(self) -> bool:
        """A chain of finite length remembers its start, and other scores are biased themselves."""
        return True

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Families that are not semi-implicit."""
        del target
        return refuses_family(q)

    def _init(self, target: Target, q: AbstractFamily) -> PyTree:
        del target
        assert isinstance(q, SemiImplicit)
        return self.score.init(q.generator)

    def step(
        self, target: Target, q: AbstractFamily, state: PyTree, *, key: Key[Array, ""]
    ) -> tuple[Estimate, PyTree]:
        """One pass from draws to gradient."""
        assert isinstance(q, SemiImplicit)
        key_draws, key_score = jr.split(key)
        e = shared_out(target, q.base.sample((self.draws, q.base_dim), q.dtype, key=key_draws))
        params, rebuild = split(q)
        w, pull = jax.vjp(lambda p: jax.vmap(rebuild(p).whitened)(e), params)
        value, slope = whitened_slope(target, q, w)
        eps = e[:, q.dim :]
        score, state = self.score(q.generator, w, eps, state, key=key_score)
        grad = pull((slope - score) / self.draws)[0]
        elbo = jnp.mean(value - conditional_log_prob(q, w, eps))
        return Estimate(grad, elbo, cost=Cost(gradients=self.draws)), state


def refuses_family(q: AbstractFamily) -> str | None:
    """The sentence for families that are not semi-implicit."""
    if isinstance(q, SemiImplicit):
        return None
    return (
        "this estimator is for a semi-implicit family, whose score is an expectation; got "
        f"{type(q).__name__}: use family='semi-implicit', or an estimator such as 'quiet'"
    )


def whitened_slope(
    target: Target, q: SemiImplicit, w: Float[Array, "draws dim"]
) -> tuple[Float[Array, " draws"], Float[Array, "draws dim"]]:
    """f(z) and its gradient with respect to w, C' grad f(z)."""
    shared = target.mesh is not None
    z = jax.vmap(q.color)(w)
    value, slope = over_points(jax.value_and_grad(target.log_density), z, shared=shared)
    return value, slope @ q.gaussian.scale()


def conditional_log_prob(
    q: SemiImplicit, w: Float[Array, "draws dim"], eps: Float[Array, "draws mixing"]
) -> Float[Array, " draws"]:
    """log q(z | eps)."""
    log_q = jax.vmap(q.generator.log_conditional)(w, eps)
    return log_q - jnp.sum(q.gaussian.log_diagonal())
