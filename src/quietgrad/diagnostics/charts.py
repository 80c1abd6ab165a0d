"""Coordinates in which the chains of a verdict move, on the host: z = T(u).

Chains of one step size cannot move both in a neck, where some coordinates are narrow, and outside of it.
In the base coordinates of a q that follows necks, the posterior is about a standard normal everywhere,
as far as q is right. The density of u whose image is the posterior is
  log pi(u) = f(T(u)) + log|dT/du|.
"""

import abc

import jax
import numpy as np
from jaxtyping import Array, Float

from .._numerics.lapack import over_points
from .._util.compiling import SOONER, program
from .._util.device import on_device
from ..evaluation.points import Points
from ..families import AbstractFamily, HostMap, ScalesFollow
from ..targets import Target
from .coordinates import BaseCoordinates
from .draws import Draws, carry
from .metric import Metric

# Points that one call of a program takes, and base draws that are carried together: as `draws.py` does,
# so that its program serves.
TOGETHER, CARRIED = 32, 128

States = Float[np.ndarray, "points base"]
Places = Float[np.ndarray, "points dim"]
Values = Float[np.ndarray, " points"]


class AbstractChart(abc.ABC):
    """A map from u to points z of the target."""

    @abc.abstractmethod
    def __call__(self, u: States) -> tuple[Values, States]:
        """log pi(u) and its gradient."""

    @abc.abstractmethod
    def carry(self, u: States) -> tuple[Places, Values]:
        """z and log|dT/du|."""

    @abc.abstractmethod
    def of_draws(self, draws: Draws) -> States:
        """u of draws of q."""

    @abc.abstractmethod
    def of_points(self, z: Places) -> States:
        """u of any points; the middle of the chart where there is none."""

    @abc.abstractmethod
    def metric(self, own: Metric) -> Metric:
        """Scales of u, where `own` are those of z."""


class PlainChart(AbstractChart):
    """u = z."""

    def __init__(self, points: Points):
        self._points = points

    def __call__(self, u: States) -> tuple[Values, States]:
        """The target itself."""
        return self._points(u)

    def carry(self, u: States) -> tuple[Places, Values]:
        """Nothing changes."""
        return u, np.zeros(len(u))

    def of_draws(self, draws: Draws) -> States:
        """The points."""
        return draws.z

    def of_points(self, z: Places) -> States:
        """The points."""
        return z

    def metric(self, own: Metric) -> Metric:
        """The same."""
        return own


class BaseChart(AbstractChart):
    """The base of a family whose scales follow, by programs of its own."""

    def __init__(self, target: Target, q: ScalesFollow, points: Points):
        assert isinstance(q, AbstractFamily)
        self._coordinates, self._points, self._inverse = (
            BaseCoordinates(target, q),
            points,
            q.host_inverse,
        )

    def __call__(self, u: States) -> tuple[Values, States]:
        """In blocks of one size."""
        self._points.gradients += len(u)
        found = []
        for first in range(0, len(u), TOGETHER):
            some = u[first : first + TOGETHER]
            block = on_device(_filled(some, TOGETHER), self._coordinates.dtype)
            made = jax.device_get(_slopes(self._coordinates, block))
            found.append([np.asarray(part, float)[: len(some)] for part in made])
        value, slope = (np.concatenate(part) for part in zip(*found, strict=True))
        return value, slope

    def carry(self, u: States) -> tuple[Places, Values]:
        """z and log q_0(u) - log q(z)."""
        q = self._coordinates.q
        blocks = [carry(q, _filled(u[n : n + CARRIED], CARRIED)) for n in range(0, len(u), CARRIED)]
        z, log_q = (np.concatenate(part)[: len(u)] for part in zip(*blocks, strict=True))
        return z.astype(float), np.sum(q.base.host_log_prob(u), axis=1) - log_q

    def of_draws(self, draws: Draws) -> States:
        """The base draws."""
        return draws.e

    def of_points(self, z: Places) -> States:
        """By the family's inverse."""
        return _finite(self._inverse(z))

    def metric(self, own: Metric) -> Metric:
        """Standard normal, as far as q is right."""
        return _unit(self._coordinates.q.base_dim)


class FollowingChart(AbstractChart):
    """Coordinates of a map on the host that follows necks as q does: nothing is compiled."""

    def __init__(self, map: HostMap, points: Points, dim: int):
        self._map, self._points, self._dim = map, points, dim

    def __call__(self, u: States) -> tuple[Values, States]:
        """A gradient of the target, pulled back."""
        z, log_det = self._map.transport(u)
        value, slope = self._points(z)
        return value + log_det, self._map.pull(u, slope)

    def carry(self, u: States) -> tuple[Places, Values]:
        """z and log|dT/du|."""
        return self._map.transport(u)

    def of_draws(self, draws: Draws) -> States:
        """By the inverse."""
        return self.of_points(draws.z)

    def of_points(self, z: Places) -> States:
        """By the inverse."""
        return _finite(self._map.inverse(z))

    def metric(self, own: Metric) -> Metric:
        """About a standard normal, as far as q is right."""
        return _unit(self._dim)


def chart_of(
    target: Target, q: AbstractFamily, points: Points, rng: np.random.Generator
) -> AbstractChart:
    """Coordinates that follow necks as q does, else the target's own coordinates.

    Not the base of a bend or a flow: right in the middle, it may be far off in a tail, where chains then
    do not move.
    """
    if not isinstance(q, ScalesFollow):
        return PlainChart(points)
    map = q.following(rng)
    return BaseChart(target, q, points) if map is None else FollowingChart(map, points, q.dim)


def _unit(dim: int) -> Metric:
    return Metric(np.zeros(dim), np.ones(dim))


def _finite(u: States) -> States:
    return np.where(np.all(np.isfinite(u), axis=1, keepdims=True), u, 0.0)


def _filled(x: Float[np.ndarray, "some _"], count: int) -> Float[np.ndarray, "count _"]:
    """Rows repeated up to a number of them: programs are made for one."""
    return np.concatenate([x, np.repeat(x[-1:], count - len(x), axis=0)])


@program(level=SOONER)
def _slopes(
    coordinates: BaseCoordinates, e: Float[Array, "points base"]
) -> tuple[Float[Array, " points"], Float[Array, "points base"]]:
    return over_points(jax.value_and_grad(coordinates.log_density), e)
