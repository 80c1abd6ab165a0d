"""Control functionals (Oates, Girolami & Chopin 2017): the Stein kernel of a Gaussian kernel.

k(x, y) = exp(-|x - y|^2 / (2 l^2)), and with s = grad log p
  k_0(x, y) = k [ d/l^2 - |x - y|^2/l^4 + (s(x) - s(y)).(x - y)/l^2 + s(x).s(y) ].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....families.bases import AbstractBase
from .kernel import AbstractKernel


class Gaussian(AbstractKernel):
    """Stein kernel with length scale `relative_length` sqrt(d), the typical distance of two draws.

    The length is fixed beforehand: one taken from the draws would tie each draw's fit to itself. Points
    whose coordinates do not vary by about one need scaling first.
    """

    relative_length: float = 1.0

    def scale(self, dim: int, base: AbstractBase) -> float:
        """k_0(e, e) = d/l^2 + |s|^2, of the order of the dimension."""
        del base
        return 1 / self.relative_length**2 + dim

    def gram(
        self, points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"]
    ) -> Float[Array, "draws draws"]:
        """k_0 between all draws."""
        inner, dim = points @ points.T, points.shape[1]
        inverse = 1 / (self.relative_length**2 * dim)
        norms = jnp.diagonal(inner)
        distance = jnp.maximum(norms[:, None] + norms[None, :] - 2 * inner, 0.0)
        own, cross = jnp.sum(scores * points, axis=1), scores @ points.T
        mixed = own[:, None] + own[None, :] - cross - cross.T
        bracket = dim * inverse - distance * inverse**2 + mixed * inverse + scores @ scores.T
        return jnp.exp(-0.5 * distance * inverse) * bracket
