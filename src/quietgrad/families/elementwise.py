"""Monotone maps of a single coordinate with parameters: what a layer does to it, given the others.

With all parameters zero each is the identity. Log scales are the identity near zero and stay within
`MOST`: they are linear in other coordinates, and several layers of exponentials overflow at far draws.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Four layers of exp(20) are within single precision; the funnel's neck at three sds, a log scale of 4.5,
# is changed by 2 %.
MOST = 20.0


class AbstractElementwise(eqx.Module):
    """u -> v with `parameters` numbers, of which the first two are a log scale and a shift."""

    @property
    @abc.abstractmethod
    def parameters(self) -> int:
        """How many numbers it takes."""

    @abc.abstractmethod
    def forward(
        self, u: Float[Array, ""], p: Float[Array, " parameters"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The image of u, and log dv/du."""

    @abc.abstractmethod
    def inverse(self, v: Float[Array, ""], p: Float[Array, " parameters"]) -> Float[Array, ""]:
        """u with forward(u) = v."""


class Affine(AbstractElementwise):
    """v = u exp(a) + t."""

    @property
    def parameters(self) -> int:
        """Log scale and shift."""
        return 2

    def forward(
        self, u: Float[Array, ""], p: Float[Array, " parameters"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The log derivative is the log scale."""
        log_scale = _bounded(p[0])
        return u * jnp.exp(log_scale) + p[1], log_scale

    def inverse(self, v: Float[Array, ""], p: Float[Array, " parameters"]) -> Float[Array, ""]:
        """(v - t) exp(-a)."""
        return (v - p[1]) * jnp.exp(-_bounded(p[0]))


class RationalQuadratic(AbstractElementwise):
    """A rational-quadratic spline from -`reach` to `reach` (Durkan et al. 2019), then scale and shift.

    `bins` intervals have widths, heights and slopes at the inner knots of their own; beyond, and at the
    ends, it is the identity. With knots (x_i, y_i), slopes d_i, s = height / width and 0 <= t <= 1,
      v = y_i + height (s t^2 + d_i t (1 - t)) / (s + (d_i + d_(i+1) - 2 s) t (1 - t)).
    """

    bins: int = 8
    reach: float = 4.0
    # Shares of a width or height, and slopes, are at least this: steeper ones are noise.
    least: float = 1e-3

    @property
    def parameters(self) -> int:
        """Log scale and shift; widths, heights and inner slopes."""
        return 2 + 3 * self.bins - 1

    def forward(
        self, u: Float[Array, ""], p: Float[Array, " parameters"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The spline's image and log slope, scaled and shifted."""
        x, y, slope = self._knots(p)
        inside = jnp.abs(u) < self.reach
        # Beyond the ends any place of the spline will do: it is not looked at, nor are its derivatives.
        at = jnp.where(inside, u, 0.0)
        x0, x1, y0, y1, d0, d1 = _bin(at, x, x, y, slope)
        s, t = (y1 - y0) / (x1 - x0), (at - x0) / (x1 - x0)
        below = s + (d0 + d1 - 2 * s) * t * (1 - t)
        v = y0 + (y1 - y0) * (s * t**2 + d0 * t * (1 - t)) / below
        above = s**2 * (d1 * t**2 + 2 * s * t * (1 - t) + d0 * (1 - t) ** 2)
        log_slope = jnp.log(above) - 2 * jnp.log(below)
        v, log_slope = jnp.where(inside, v, u), jnp.where(inside, log_slope, 0.0)
        log_scale = _bounded(p[0])
        return v * jnp.exp(log_scale) + p[1], log_slope + log_scale

    def inverse(self, v: Float[Array, ""], p: Float[Array, " parameters"]) -> Float[Array, ""]:
        """The root of a quadratic."""
        v = (v - p[1]) * jnp.exp(-_bounded(p[0]))
        x, y, slope = self._knots(p)
        inside = jnp.abs(v) < self.reach
        at = jnp.where(inside, v, 0.0)
        x0, x1, y0, y1, d0, d1 = _bin(at, y, x, y, slope)
        s, rise = (y1 - y0) / (x1 - x0), at - y0
        bend = rise * (d0 + d1 - 2 * s)
        a, b, c = (y1 - y0) * (s - d0) + bend, (y1 - y0) * d0 - bend, -s * rise
        t = 2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0)))
        return jnp.where(inside, x0 + t * (x1 - x0), v)

    def _knots(
        self, p: Float[Array, " parameters"]
    ) -> tuple[Float[Array, " knots"], Float[Array, " knots"], Float[Array, " knots"]]:
        """Places, heights and slopes."""
        widths, heights, slopes = (
            p[2 : 2 + self.bins],
            p[2 + self.bins : 2 + 2 * self.bins],
            p[-self.bins + 1 :],
        )

        def knots(raw: Float[Array, " bins"]) -> Float[Array, " knots"]:
            share = self.least + (1 - self.least * self.bins) * jax.nn.softmax(raw)
            inner = 2 * self.reach * jnp.cumsum(share)[:-1] - self.reach
            ends = jnp.array([-self.reach, self.reach], raw.dtype)
            return jnp.concatenate([ends[:1], inner, ends[1:]])

        # softplus(log(e - 1)) is one.
        inner = self.least + (1 - self.least) * jax.nn.softplus(slopes + math.log(math.e - 1))
        one = jnp.ones(1, p.dtype)
        return knots(widths), knots(heights), jnp.concatenate([one, inner, one])


def _bounded(log_scale: Float[Array, ""]) -> Float[Array, ""]:
    return MOST * jnp.tanh(log_scale / MOST)


def _bin(
    at: Float[Array, ""],
    along: Float[Array, " knots"],
    x: Float[Array, " knots"],
    y: Float[Array, " knots"],
    slope: Float[Array, " knots"],
) -> tuple[Array, ...]:
    """Knots to both sides of a place, which is one of `along`'s axis; by products, not by indices."""
    number = jnp.clip(jnp.sum(at >= along) - 1, 0, along.size - 2)
    left = (jnp.arange(along.size) == number).astype(x.dtype)
    right = (jnp.arange(along.size) == number + 1).astype(x.dtype)
    return tuple(side @ values for values in (x, y, slope) for side in (left, right))
