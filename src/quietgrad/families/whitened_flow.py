"""Real NVP in the coordinates of a Gaussian: what a full-rank fit leaves over is learned by a flow.

z = mu + C w, where N(mu, C C') is a Gaussian fit that stays as it is, and w is a real NVP with a final
shift and scale. In these coordinates the posterior has unit scales and no correlations, whatever its own
are, so that the same step sizes suit every posterior.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key

from .bases import AbstractBase, Normal
from .family import AbstractFamily
from .flow import AbstractFlow, AbstractLayer, ShiftScale
from .full_rank import FullRank, pack_triangle
from .mean_field import MeanField
from .real_nvp import HIDDEN_WIDTHS, Coupling, couplings_of

COUPLINGS = 4


class Whitening(AbstractLayer):
    """u -> mu + C u with the location and scale of a Gaussian, which gradients leave alone."""

    gaussian: FullRank

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of u and log det C."""
        fixed = jax.lax.stop_gradient(self.gaussian)
        return fixed.transport(u), jnp.sum(fixed.log_diagonal())

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score is multiplied by C^-T."""
        scale = jax.lax.stop_gradient(self.gaussian).scale()
        return *self.forward(u), solve_triangular(scale, score, lower=True, trans="T")

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """C^-1 (v - mu)."""
        return jax.lax.stop_gradient(self.gaussian).inverse(v)


class WhitenedRealNVP(AbstractFlow):
    """Real NVP with a shift and scale, seen through a fixed Gaussian; at first unit scales around 0."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        couplings: int = COUPLINGS,
        widths: tuple[int, ...] = HIDDEN_WIDTHS,
        base: AbstractBase = Normal(),
    ) -> "WhitenedRealNVP":
        """Couplings as in `RealNVP.init`, and a unit Gaussian."""
        layers = couplings_of(dim, couplings, widths, key=key)
        unit = _unit(dim, base)
        layers = (*layers, ShiftScale.identity(dim), Whitening(unit))
        return cls(layers=layers, size=dim, base=base)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "WhitenedRealNVP":
        """Couplings that move nothing, seen through the Gaussian."""
        still = [layer.identity() for layer in self.layers if isinstance(layer, Coupling)]
        gaussian = _unit(self.size, self.base, other.dtype).start_from(other, key=key)
        assert isinstance(gaussian, FullRank)
        shift = ShiftScale.identity(self.size, other.dtype)
        layers = (*still, shift, Whitening(gaussian))
        return WhitenedRealNVP(layers=layers, size=self.size, base=self.base)


def _unit(dim: int, base: AbstractBase, dtype: Any = None) -> FullRank:
    """Unit scales around zero."""
    packed = pack_triangle(jnp.zeros((dim, dim), dtype))
    return FullRank(loc=jnp.zeros(dim, dtype), packed=packed, base=base)
