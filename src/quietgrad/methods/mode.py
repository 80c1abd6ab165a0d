"""The mode of a log density with its curvature: a start for Gaussian families, best where data are many.

Several searches by L-BFGS share their evaluations, so that many cost little more than one. Newton steps
with the whole Hessian settle the best of them, which gets to the end of narrow ridges where L-BFGS
stops. Directions of positive curvature are followed uphill (Dauphin et al. 2014).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._lbfgs import minimise_together
from ..clock import OPTIMISE
from ..points import Points
from ..recorder import Recorder
from .positive import newton_step, out_of, positive, root_of

# Searches, their iterations, and how far their starts are spread around the given one. Newton steps
# settle what the iterations leave, so that these need only tell which search leads highest.
SEARCHES, ITERATIONS, SPREAD = 6, 10, 1.0
MEMORY = 10
NEWTON_STEPS = 30
# Lengths of a Newton step that are tried, all in one call.
LENGTHS = 2.0 ** np.arange(1.0, -15.0, -0.5)
# A step that promises less than this share of a nat is the last one.
ENOUGH = 1e-3


class Mode(NamedTuple):
    """Where the log density is highest, as far as was found, and minus its Hessian there."""

    z: Float[np.ndarray, " dim"]
    precision: Float[np.ndarray, "dim dim"]


def find_mode(
    points: Points,
    center: Float[np.ndarray, " dim"],
    recorder: Recorder,
    rng: np.random.Generator,
) -> Mode | None:
    """The highest mode found around the center; None if the density or its curvature is not finite."""
    recorder.progress.stage = "search for the mode"
    dim = len(center)
    spread = SPREAD * rng.uniform(-1, 1, (SEARCHES - 1, dim))
    starts = center + np.concatenate([np.zeros((1, dim)), spread])

    with recorder.clock.phase(OPTIMISE), np.errstate(all="ignore"):
        found = minimise_together(
            loss_of(points, recorder), starts, iterations=ITERATIONS, memory=MEMORY
        )
        best = min(found, key=lambda at: at.value if np.isfinite(at.value) else np.inf)
        if not np.isfinite(best.value):
            return None
        return settled(points, best.x, -best.value, recorder)


def loss_of(points: Points, recorder: Recorder) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Minus the log density and its gradient at many points; ends the fit where it has to end."""

    def loss(z: Float[np.ndarray, "k dim"]) -> tuple[np.ndarray, np.ndarray]:
        recorder.check()
        value, slope = points(z)
        return -value, -slope

    return loss


def settled(
    points: Points, z: Float[np.ndarray, " dim"], height: float, recorder: Recorder
) -> Mode | None:
    """Newton steps to the top, each in the coordinates of the curvature before."""
    basis, curvature = np.eye(len(z)), None
    for number in range(NEWTON_STEPS):
        recorder.check()
        gradient, hessian = points.curvature(z[None], basis)
        if not (np.all(np.isfinite(hessian)) and np.any(np.diagonal(hessian))):
            break
        if number == 0:
            # Coordinates may differ by many powers of ten; one without any curvature is left alone.
            diagonal = np.abs(np.diagonal(hessian))
            scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
            basis, hessian = np.diag(scale), hessian * np.outer(scale, scale)
        curvature = positive(-hessian)
        step = newton_step(basis, curvature, gradient)
        basis = root_of(basis, curvature)
        if not float(gradient @ step) > ENOUGH:
            break
        trials = z + LENGTHS[:, None] * step
        values = points(trials)[0]
        place = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
        if not values[place] > height:
            break
        z, height = trials[place], float(values[place])
    return None if curvature is None else Mode(z, out_of(basis, np.eye(len(z))))
