"""SIVI's own estimator (Yin & Zhou 2018): the gradient of a lower bound with shared prior draws.

L_K = E [ f(z) - log (1/(K+1)) (q(z | eps) + sum_k q(z | eps_k)) ],   eps_1 ... eps_K ~ N(0, I)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import whole
from ..families import AbstractFamily, SemiImplicit, split
from ..scale.sharding import shared_out
from ..targets import Target
from .estimator import AbstractEstimator, Cost, Estimate
from .semi_implicit import refuses_family, whitened_slope


class Sivi(AbstractEstimator):
    """The gradient of SIVI's bound with `nodes` prior draws, which the `draws` of a step share.

    Unbiased for the bound, and so biased for the ELBO: the bound rises to it as nodes grow.
    Cost of a step: `draws` gradients of the target and `draws` + `nodes` passes through the network.
    """

    draws: int = eqx.field(static=True, default=16, converter=lambda n: whole(n, "draws", least=1))
    nodes: int = eqx.field(static=True, default=256, converter=lambda n: whole(n, "nodes", least=0))

    @property
    def biased(self) -> bool:
        """The bound is below the ELBO."""
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
        """One backward pass through points and bound."""
        assert isinstance(q, SemiImplicit)
        key_draws, key_nodes = jr.split(key)
        e = shared_out(target, q.base.sample((self.draws, q.base_dim), q.dtype, key=key_draws))
        nodes = jr.normal(key_nodes, (self.nodes, q.mixing), q.dtype)
        params, rebuild = split(q)

        def forward(p: PyTree) -> tuple[Array, Array]:
            moved = rebuild(p)
            w = jax.vmap(moved.whitened)(e)
            return w, _log_bound(moved, w, e[:, q.dim :], nodes)

        (w, log_q), pull = jax.vjp(forward, params)
        value, slope = whitened_slope(target, q, w)
        grad = pull((slope / self.draws, jnp.full_like(log_q, -1 / self.draws)))[0]
        log_q = log_q - jnp.sum(q.gaussian.log_diagonal())
        return Estimate(grad, jnp.mean(value - log_q), cost=Cost(gradients=self.draws)), state


def _log_bound(
    q: SemiImplicit,
    w: Float[Array, "draws dim"],
    eps: Float[Array, "draws mixing"],
    nodes: Float[Array, "nodes mixing"],
) -> Float[Array, " draws"]:
    """log of the mean of q(w | eps) over the draw's own eps and the nodes, up to a constant of w."""
    own = jax.vmap(q.generator.log_conditional)(w, eps)
    mean, log_std = jax.vmap(q.generator)(nodes)
    precision = jnp.exp(-2 * log_std)
    # |w - mu|^2 in the metric of each node, by matrix products instead of draws x nodes x dim numbers.
    square = w**2 @ precision.T - 2 * w @ (mean * precision).T
    square = square + jnp.sum(mean**2 * precision, axis=1)[None, :]
    constant = q.dim * jnp.log(2 * jnp.asarray(jnp.pi, w.dtype))
    others = -0.5 * (square + constant) - jnp.sum(log_std, axis=1)[None, :]
    every = jnp.concatenate([own[:, None], others], axis=1)
    return jax.nn.logsumexp(every, axis=1) - jnp.log(jnp.asarray(every.shape[1], w.dtype))
