"""A Gaussian that is bent: a triangular map of draws, seen through a full-rank Gaussian.

z = mu + C v, where N(mu, C C') is a Gaussian fit that stays as it is, and v is the image of a normal
draw under a `Bend`: skewed or heavy-tailed coordinates, bananas and funnels. It is evaluated and fitted
on the host, with the program of the target's values and gradients alone.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .bases import AbstractBase, Normal
from .bend import Bend, HostBend
from .family import AbstractFamily, HasHostDensity
from .flow import AbstractFlow, AbstractLayer
from .full_rank import FullRank, pack_triangle
from .mean_field import MeanField
from .whitened_flow import Whitening


class Curved(AbstractFlow, HasHostDensity):
    """A bend in the coordinates of a Gaussian; at first one that moves nothing."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], order: tuple[int, ...] | None = None) -> "Curved":
        """The standard normal; coordinates depend on those before them in `order`."""
        del key
        dim = whole(dim, "dim", least=1)
        order = tuple(range(dim)) if order is None else order
        if sorted(order) != list(range(dim)):
            raise ValueError(f"order must list the coordinates 0 to {dim - 1} once each; got {order}")
        unit = FullRank(loc=jnp.zeros(dim), packed=pack_triangle(jnp.zeros((dim, dim))))
        return cls(layers=(Bend.identity(order), Whitening(unit)), size=dim)

    @classmethod
    def made_of(cls, bend: HostBend, gaussian: FullRank) -> "Curved":
        """The member with a bend of the host, in the precision of the Gaussian."""
        own, pairs = (jnp.asarray(np.asarray(x, gaussian.dtype)) for x in (bend.own, bend.pairs))
        layers = Bend(own, pairs, bend.order), Whitening(gaussian)
        return cls(layers=layers, size=gaussian.dim, base=gaussian.base)

    @property
    def bend(self) -> Bend:
        """The triangular map."""
        found = self.layers[0]
        assert isinstance(found, Bend)
        return found

    @property
    def gaussian(self) -> FullRank:
        """The Gaussian in whose coordinates it is bent."""
        found = self.layers[1]
        assert isinstance(found, Whitening)
        return found.gaussian

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "Curved":
        """A bend that moves nothing, seen through the Gaussian."""
        gaussian: Any = self.gaussian.start_from(other, key=key)
        bend = Bend.identity(self.bend.order, other.dtype)
        return Curved(layers=(bend, Whitening(gaussian)), size=self.size, base=self.base)

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """`transport` of many draws."""
        return self.host_transport_and_log_prob(e)[0]

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """log q at the points that draws are carried to."""
        return self.host_transport_and_log_prob(e)[1]

    def host_transport_and_log_prob(
        self, e: Float[np.ndarray, "draws base"]
    ) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
        """Both, from one pass."""
        bent, gaussian = HostBend.of(self.bend).at(e), self.gaussian
        # The Gaussian's log density at a draw is that of the base minus log det C.
        log_q = gaussian.host_log_prob(e) - bent.log_det
        return gaussian.host_transport(bent.image), log_q

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """That of the draws which lead there."""
        return self.host_log_prob(HostBend.of(self.bend).inverse(self.gaussian.host_inverse(z)))
