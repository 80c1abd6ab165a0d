"""KSIVI (Cheng et al. 2024): a semi-implicit q by its kernel Stein discrepancy, which needs no log q.

  KSD^2 = E k(w, w') <grad f(w) - grad log q(w | eps), grad f(w') - grad log q(w' | eps')>
for independent pairs (w, eps), (w', eps'): the conditional score may stand for that of q.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import whole
from ..families import AbstractFamily, SemiImplicit, split
from ..scale.sharding import shared_out
from ..targets import Target
from .estimator import AbstractEstimator, Cost, Estimate
from .semi_implicit import conditional_log_prob, refuses_family, whitened_slope


class Ksivi(AbstractEstimator):
    """Minus the gradient of KSD^2 over all pairs of `draws` draws; a Gaussian kernel of median width.

    It descends another objective than the ELBO. Cost of a step: `draws` gradients of the target and
    as many products with its Hessian.
    """

    draws: int = eqx.field(static=True, default=64, converter=lambda n: whole(n, "draws", least=2))

    @property
    def biased(self) -> bool:
        """It is not the gradient of the ELBO."""
        return True

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Families that are not semi-implicit."""
        del target
        return refuses_family(q)

    def _init(self, target: Target, q: AbstractFamily) -> None:
        del target, q

    def step(
        self, target: Target, q: AbstractFamily, state: None, *, key: Key[Array, ""]
    ) -> tuple[Estimate, None]:
        """The discrepancy and its gradient, through points, scores and kernel."""
        assert isinstance(q, SemiImplicit)
        e = shared_out(target, q.base.sample((self.draws, q.base_dim), q.dtype, key=key))
        params, rebuild = split(q)
        eps = e[:, q.dim :]

        def discrepancy(p: PyTree) -> tuple[Float[Array, ""], tuple[Array, Array]]:
            moved = rebuild(p)
            w = jax.vmap(moved.whitened)(e)
            value, slope = whitened_slope(target, q, w)
            gap = slope - jax.vmap(moved.generator.conditional_score)(w, eps)
            square = jnp.sum((w[:, None, :] - w[None, :, :]) ** 2, axis=-1)
            other = ~jnp.eye(self.draws, dtype=bool)
            width = jax.lax.stop_gradient(jnp.nanmedian(jnp.where(other, square, jnp.nan)))
            kernel = jnp.where(other, jnp.exp(-square / width), 0)
            pairs = self.draws * (self.draws - 1)
            return jnp.sum(kernel * (gap @ gap.T)) / pairs, (w, value)

        grad, (w, value) = jax.grad(discrepancy, has_aux=True)(params)
        elbo = jnp.mean(value - conditional_log_prob(q, w, eps))
        cost = Cost(gradients=self.draws, hessian_products=self.draws)
        return Estimate(jax.tree.map(jnp.negative, grad), elbo, cost=cost), state
