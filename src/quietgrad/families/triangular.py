"""A small triangular flow for a few coordinates: skewed, with tails and scales that follow each other.

In the coordinates of a Gaussian, one coordinate after the other (Knothe-Rosenblatt):
  v_j = sinh(exp(tail_j) (x + lean_j (sqrt(1 + x^2) - 1)) + skew_j),    x = asinh e_j,
  lean_j = 0.95 tanh turn_j,
  u_j = shift_j + M_j phi(u_<j) + exp(log_scale_j + S_j phi(u_<j)) v_j,
  z = mu + C u,    phi(u) = (u, sqrt(1 + u^2) - 1).
The sinh-arcsinh transform (Jones & Pewsey 2009) has a skew and tails from light to heavy; `lean` makes
each tail one of its own kind, as the log of a scale has them: exponential to the left, light to the
right. phi has slopes of its own to both sides, too. Some dozens of numbers that a quasi-Newton method
can learn at fixed draws.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from .._util.checks import whole
from .._util.device import on_device
from .bases import AbstractBase, Normal
from .family import AbstractFamily, HasHostDensity, Invertible
from .full_rank import FullRank, host_unpack, pack_triangle
from .host_triangular import MOST_LEAN, TRAINED, HostTriangular, below
from .mean_field import MeanField

# Features of a coordinate that the later ones follow.
FEATURES = 2


class Triangular(AbstractFamily, Invertible, HasHostDensity):
    """Seen through `gaussian`, which gradients leave alone, its coordinates in `order`.

    5 dim + 2 dim (dim - 1) numbers. It begins as the Gaussian itself. Draws are made one coordinate
    after the other, densities at once: for some ten coordinates at most.
    """

    shift: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    skew: Float[Array, " dim"]
    tail: Float[Array, " dim"]
    turn: Float[Array, " dim"]
    mean_slope: Float[Array, "below 2"]
    scale_slope: Float[Array, "below 2"]
    gaussian: FullRank
    order: Int[Array, " dim"]
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], spread: float = 0.5, base: AbstractBase = Normal()
    ) -> "Triangular":
        """The start of the full-rank family, as it is."""
        return cls.of_gaussian(
            FullRank.init(whole(dim, "dim", least=1), key=key, spread=spread, base=base)
        )

    @classmethod
    def of_gaussian(cls, gaussian: FullRank, order: Any = None) -> "Triangular":
        """A Gaussian itself; `gaussian` has its coordinates in `order`, by default their own."""
        dim, dtype = gaussian.dim, np.dtype(gaussian.dtype)
        zero = on_device(np.zeros(dim, dtype))
        pairs = on_device(np.zeros((dim * (dim - 1) // 2, FEATURES), dtype))
        places = on_device(np.arange(dim) if order is None else order, np.int32)
        return cls(
            shift=zero,
            log_scale=zero,
            skew=zero,
            tail=zero,
            turn=zero,
            mean_slope=pairs,
            scale_slope=pairs,
            gaussian=gaussian,
            order=places,
            base=gaussian.base,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "Triangular":
        """The Gaussian itself."""
        if isinstance(other, MeanField):
            packed = pack_triangle(jnp.diag(other.log_std))
            return type(self).of_gaussian(FullRank(loc=other.loc, packed=packed, base=self.base))
        assert isinstance(other, FullRank)
        return type(self).of_gaussian(other)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.shift.shape[0]

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z, one coordinate of u after the other."""
        return self.transport_and_log_det(e)[0]

    def transport_and_log_det(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z and log |dz/de|."""
        v, log_det = self._shaped(e)
        places, features = below(self.dim), []
        means, scales = self.mean_slope.reshape(-1), self.scale_slope.reshape(-1)
        us, logs = [], []
        for j in range(self.dim):
            mean, log = self.shift[j], self.log_scale[j]
            if j:
                # The rows of the two tables that belong to j, feature by feature.
                first, last = FEATURES * places[j], FEATURES * places[j + 1]
                known = jnp.concatenate(features)
                mean, log = mean + means[first:last] @ known, log + scales[first:last] @ known
            u = mean + jnp.exp(log) * v[j]
            us.append(u)
            logs.append(log)
            features.append(_features(u))
        fixed = jax.lax.stop_gradient(self.gaussian)
        log_det = log_det + sum(logs) + jnp.sum(fixed.log_diagonal())
        return self._placed(fixed.transport(jnp.stack(us))), log_det

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = sum log q_0(e_i) - log |dz/de|."""
        z, log_det = self.transport_and_log_det(e)
        return z, jnp.sum(self.base.log_prob(e)) - log_det

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score at z, by the density."""
        z, log_prob = self.transport_and_log_prob(e)
        return z, log_prob, jax.grad(self._log_prob)(z)

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e, all coordinates at once."""
        return self._inverse(z)[0]

    def _inverse(self, z: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        fixed = jax.lax.stop_gradient(self.gaussian)
        u = fixed.inverse(z[self.order])
        features, rows, columns = _features(u), *np.tril_indices(self.dim, -1)

        def following(slope: Float[Array, "below 2"]) -> Float[Array, " dim"]:
            terms = jnp.sum(slope * features.reshape(-1, FEATURES)[columns], axis=1)
            return jnp.zeros_like(u).at[rows].add(terms)

        log = self.log_scale + following(self.scale_slope)
        v = (u - self.shift - following(self.mean_slope)) * jnp.exp(-log)
        lean = MOST_LEAN * jnp.tanh(self.turn)
        w = (jnp.arcsinh(v) - self.skew) * jnp.exp(-self.tail) + lean
        e = jnp.sinh((w - lean * jnp.sqrt(w**2 + 1 - lean**2)) / (1 - lean**2))
        log_det = self._shaped(e)[1] + jnp.sum(log) + jnp.sum(fixed.log_diagonal())
        return e, log_det

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        e, log_det = self._inverse(z)
        return jnp.sum(self.base.log_prob(e)) - log_det

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """z of many draws."""
        return self.host_transport_and_log_prob(e)[0]

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """log q where draws are carried to."""
        return self.host_transport_and_log_prob(e)[1]

    def host_transport_and_log_prob(
        self, e: Float[np.ndarray, "draws base"]
    ) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
        """The same as for one draw."""
        found = self.on_host().carried(e)
        return found.z, np.sum(self.base.host_log_prob(e), axis=1) - found.log_det

    def host_inverse(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points base"]:
        """`inverse` of many points."""
        return self.on_host().inverse(z)

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """By the inverse, whose draws are carried back for the volume."""
        return self.host_log_prob(self.host_inverse(z))

    def on_host(self) -> HostTriangular:
        """The same map in double precision."""
        return HostTriangular(
            shift=np.asarray(self.shift, float),
            log_scale=np.asarray(self.log_scale, float),
            skew=np.asarray(self.skew, float),
            tail=np.asarray(self.tail, float),
            turn=np.asarray(self.turn, float),
            mean_slope=np.asarray(self.mean_slope, float),
            scale_slope=np.asarray(self.scale_slope, float),
            mean=np.asarray(self.gaussian.loc, float),
            root=host_unpack(self.gaussian.packed, self.dim),
            order=np.asarray(self.order),
        )

    def with_host(self, found: HostTriangular) -> "Triangular":
        """The member with the numbers of a map on the host; the Gaussian stays."""
        numbers = [on_device(part, np.dtype(self.dtype)) for part in found[:TRAINED]]
        shift, log_scale, skew, tail, turn, mean_slope, scale_slope = numbers
        return type(self)(
            shift=shift,
            log_scale=log_scale,
            skew=skew,
            tail=tail,
            turn=turn,
            mean_slope=mean_slope,
            scale_slope=scale_slope,
            gaussian=self.gaussian,
            order=self.order,
            base=self.base,
        )

    def _shaped(self, e: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """v and log |dv/de|."""
        x, lean = jnp.arcsinh(e), MOST_LEAN * jnp.tanh(self.turn)
        root = jnp.sqrt(1 + x**2)
        inner = jnp.exp(self.tail) * (x + lean * (root - 1)) + self.skew
        slope = jnp.logaddexp(inner, -inner) - jnp.log(2.0) + self.tail - 0.5 * jnp.log1p(e**2)
        slope = slope + jnp.log1p(lean * x / root)
        return jnp.sinh(inner), jnp.sum(slope)

    def _placed(self, ordered: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.zeros_like(ordered).at[self.order].set(ordered)


def _features(u: Float[Array, "*n"]) -> Float[Array, " _"]:
    """phi of each coordinate, one after the other."""
    return jnp.stack([u, jnp.sqrt(1 + u**2) - 1], axis=-1).reshape(-1)
