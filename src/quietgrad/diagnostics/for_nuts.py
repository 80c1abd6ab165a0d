"""What a fit can give to NUTS: starting points in the posterior's bulk and an inverse mass matrix.

Warm-up of NUTS looks for both. From a fit, the matrix is the inverse of the average curvature under q,
which least squares of gradients on draws gives: exact for a Gaussian posterior, mean-field q or not.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._util.device import on_device
from ..evaluation.points import Points
from ..families import AbstractFamily
from ..targets import Target
from .coordinates import AbstractCoordinates, coordinates_of
from .draws import Draws, draw
from .metric import Metric, metric_of
from .psis import smooth

DRAWS = 2000
# A dense matrix costs dim^2 at every leapfrog step.
MOST_DENSE = 200


class NutsStart(eqx.Module):
    """Starting points and an inverse mass matrix, on the unconstrained scale.

    `points` (chains, dim) are draws of q, importance-weighted where the weights can be relied on, and
    `init_params` the same in the form of the target's points: for a NumPyro model, dicts of its sites.
    `inverse_mass_matrix` is (dim, dim) if `dense` and (dim,) otherwise. `step_size` is where adaptation
    may start: in this metric the posterior is about a unit Gaussian.

    `coordinates` has the transformed density: `coordinates.log_density(u)` is the log density of u whose
    image under `coordinates.point(u)` is the posterior. In it the posterior is about a standard normal
    as far as q is right, in the base of a flow, a mixture or a hierarchy. `start` (chains, base) are
    the starting points there.
    """

    points: Float[Array, "chains dim"]
    init_params: Any
    inverse_mass_matrix: Float[Array, "..."]
    step_size: float
    dense: bool = eqx.field(static=True)
    coordinates: AbstractCoordinates
    start: Float[Array, "chains base"]

    @property
    def numpyro(self) -> dict[str, Any]:
        """Keyword arguments for `numpyro.infer.NUTS`; a short warm-up then only adapts the step."""
        return {
            "inverse_mass_matrix": self.inverse_mass_matrix,
            "dense_mass": self.dense,
            "adapt_mass_matrix": False,
            "step_size": self.step_size,
        }

    @property
    def blackjax(self) -> dict[str, Any]:
        """Keyword arguments for `blackjax.nuts`, beside the log density."""
        return {"inverse_mass_matrix": self.inverse_mass_matrix, "step_size": self.step_size}


def nuts_start(
    target: Target,
    q: AbstractFamily,
    rng: np.random.Generator,
    chains: int,
    *,
    dense: bool | None = None,
) -> NutsStart:
    """`dense=None` takes a full matrix up to 200 coordinates, where there are draws enough for one."""
    metric, drawn, rows = _started(target, q, rng, chains)
    dense = metric.dense and q.dim <= MOST_DENSE if dense is None else dense
    points = on_device(drawn.z[rows], q.dtype)
    matrix = on_device(_matrix(metric, dense=dense), q.dtype)
    params = jax.vmap(target.point)(points)
    coordinates = coordinates_of(target, q, metric)
    start = coordinates.of_draws(drawn, rows)
    return NutsStart(points, params, matrix, float(q.dim**-0.25), dense, coordinates, start)


def transformed(
    target: Target, q: AbstractFamily, rng: np.random.Generator, chains: int
) -> tuple[AbstractCoordinates, Float[Array, "chains base"], Metric]:
    """Coordinates for chains, and where in them these start."""
    metric, drawn, rows = _started(target, q, rng, chains)
    coordinates = coordinates_of(target, q, metric)
    return coordinates, coordinates.of_draws(drawn, rows), metric


def _started(
    target: Target, q: AbstractFamily, rng: np.random.Generator, chains: int
) -> tuple[Metric, Draws, Int[np.ndarray, " chains"]]:
    """The posterior's metric, draws of q, and those at which chains start."""
    drawn = draw(q, Points(target, q.dtype), rng, DRAWS)
    if not drawn.finite.any():
        raise ValueError(
            "no draw of q has a finite log density, so there is nothing for NUTS to start from; look at "
            "result.diagnose()"
        )
    weights = smooth(drawn.log_weights)
    if weights.usable:
        rows = weights.resample(rng, chains)
    else:
        rows = rng.choice(np.flatnonzero(drawn.finite), chains)
    return metric_of(drawn), drawn, rows


def _matrix(metric: Metric, *, dense: bool) -> np.ndarray:
    return metric.covariance if dense else metric.std**2
