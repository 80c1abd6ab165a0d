"""Short chains in the base coordinates of q: for families whose locals' scales follow their globals.

In a hierarchy chains of one step size cannot move both in the neck, where locals are narrow, and
outside of it. In q's base coordinates (`coordinates.py`) the posterior is about a standard normal
everywhere, as far as q is right.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .._numerics.lapack import over_points
from .._util.device import on_device
from ..evaluation.points import Points
from ..families import AbstractFamily, ScalesFollow
from ..targets import Target
from .chains import Chains, Sampler
from .coordinates import BaseCoordinates
from .draws import carry
from .metric import Metric
from .settings import Diagnostics

# Points that one call of a program takes, and base draws that are carried together: as `draws.py` does,
# so that its program serves.
TOGETHER, CARRIED = 32, 128


class CarriedSampler:
    """A `Sampler` of base draws whose chains are told as points. It is run on as that one is."""

    def __init__(
        self,
        target: Target,
        q: AbstractFamily,
        points: Points,
        start: Float[np.ndarray, "chains base"],
        ends: Float[np.ndarray, "climbs dim"],
        rng: np.random.Generator,
        settings: Diagnostics,
    ):
        self._coordinates, self._count = BaseCoordinates(target, q), points
        assert isinstance(q, ScalesFollow)
        first = q.host_inverse(ends)
        # A climb that ended where q cannot go begins at q's middle.
        first = np.where(np.all(np.isfinite(first), axis=1, keepdims=True), first, 0.0)
        e = np.concatenate([start, first])
        unit = Metric(np.zeros(e.shape[1]), np.ones(e.shape[1]))
        self._sampler = Sampler(self._values, unit, e, rng, settings)  # pyright: ignore[reportArgumentType]

    def run(self, gradients: int) -> Chains:
        """Go on for about as many gradients; everything so far, as points z and log densities there."""
        chains, q = self._sampler.run(gradients), self._coordinates.q
        moves, count, base = chains.z.shape
        e = np.concatenate([chains.start, chains.z.reshape(-1, base)])
        blocks = [carry(q, _filled(e[n : n + CARRIED], CARRIED)) for n in range(0, len(e), CARRIED)]
        z, log_q = (np.concatenate(part)[: len(e)] for part in zip(*blocks, strict=True))
        prior = np.sum(q.base.host_log_prob(e), axis=1)[count:].reshape(moves, count)
        values = chains.values + log_q[count:].reshape(moves, count) - prior
        z = z.astype(float)
        return Chains(z[:count], z[count:].reshape(moves, count, -1), values, chains.acceptance)

    def _values(
        self, e: Float[np.ndarray, "points base"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points base"]]:
        self._count.gradients += len(e)
        value, slope = self._blocks(_slopes, self._coordinates, e)
        return value, slope

    def _blocks(self, program: Any, of: Any, x: Float[np.ndarray, "points _"]) -> tuple[np.ndarray, ...]:
        """A program at many points, in blocks of one size."""
        found = []
        for first in range(0, len(x), TOGETHER):
            some = x[first : first + TOGETHER]
            block = on_device(_filled(some, TOGETHER), self._coordinates.dtype)
            made = jax.device_get(program(of, block))
            found.append([np.asarray(part, float)[: len(some)] for part in made])
        return tuple(np.concatenate(part) for part in zip(*found, strict=True))


def _filled(x: Float[np.ndarray, "some _"], count: int) -> Float[np.ndarray, "count _"]:
    """Rows repeated up to a number of them: programs are made for one."""
    return np.concatenate([x, np.repeat(x[-1:], count - len(x), axis=0)])


@eqx.filter_jit
def _slopes(
    coordinates: BaseCoordinates, e: Float[Array, "points base"]
) -> tuple[Float[Array, " points"], Float[Array, "points base"]]:
    return over_points(jax.value_and_grad(coordinates.log_density), e)
