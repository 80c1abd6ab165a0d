"""Stein weights for prior draws that all points share, on top of their importance weights.

With v_k proportional to q(w | eps_k), self-normalised, the mean of the columns t_j under v is an
estimate of zero: a fit with the masses v takes away from the score what the columns explain of it.
The eps that made a point is one of its nodes, as in SIVI's bound: where prior draws miss what made the
point, the score is that of q(w | eps), and not that of a node far away.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...families.semi_implicit import Generator
from ..weights import Polynomial
from ..weights.masses import weighted_ridge
from .score import AbstractScore


class SteinShared(AbstractScore):
    """Stein weights for `nodes` prior draws with the masses q(w | eps_k), which all points share.

    The nodes have every mode of q(eps | w) that the prior finds. The effective number of them falls
    exponentially with the dimension of eps; with one node of all the mass, the weights are the masses.
    Biased by the order of one over that number. Costs `nodes` Jacobians of the network a step, however
    many the points.
    """

    nodes: int = eqx.field(static=True, default=256)
    order: int = eqx.field(static=True, default=1)
    penalty: float = eqx.field(static=True, default=1e-2)

    @property
    def biased(self) -> bool:
        """In-sample weights are, and self-normalised ones."""
        return True

    def gradients(self, mixing: int) -> int:
        """None: the network is evaluated for all points together."""
        del mixing
        return 0

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: None,
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], None]:
        """Network and Jacobians at the nodes once, and a fit of few columns for each point."""
        prior = jr.normal(key, (self.nodes, eps.shape[1]), w.dtype)
        kernel = Polynomial(self.order)
        # mu, log sigma and their Jacobians, at the shared nodes and at each point's own eps.
        shared, own = (_linearised(generator, x) for x in (prior, eps))

        def one(w: Float[Array, " dim"], own: tuple[Array, ...]) -> Float[Array, " dim"]:
            every = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), shared, own)
            x, mean, log_std, mean_slope, scale_slope = every
            inverse = jnp.exp(-log_std)
            gap = (w[None, :] - mean) * inverse
            mass = jax.nn.softmax(-0.5 * jnp.sum(gap**2, axis=1) - jnp.sum(log_std, axis=1))
            # t = grad_eps log q(w | eps) - eps, by the chain rule through mu and log sigma.
            t = jnp.einsum("nd,ndk->nk", gap * inverse, mean_slope)
            t = t + jnp.einsum("nd,ndk->nk", gap**2 - 1, scale_slope) - x
            weights = weighted_ridge(kernel, x, t, mass, jnp.asarray(self.penalty, w.dtype))
            return weights @ (-gap * inverse)

        return jax.vmap(one)(w, own), state


def _linearised(generator: Generator, eps: Float[Array, "nodes mixing"]) -> tuple[Array, ...]:
    """eps, mu, log sigma and the Jacobians of these two."""
    return (eps, *jax.vmap(generator)(eps), *jax.vmap(jax.jacfwd(generator))(eps))
