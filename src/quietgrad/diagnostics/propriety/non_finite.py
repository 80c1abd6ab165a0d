"""Where a log density is not finite, in words."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...status import Status
from ...targets import Target
from .finding import Finding

# For a fit that could not go on because of them.
WALL = (
    "steps ran into points next to the answer where the log density is NaN or infinite, so the answer "
    "is not the best one; if the density is zero in part of the space, map that part away (log, logit)"
)
# Rows that are named.
SHOWN = 3


def nowhere_finite(target: Target, points: Float[np.ndarray, "points dim"]) -> Finding:
    """Say which part of the target is not finite at these points."""
    point, count = jnp.asarray(points[0]), len(points)
    where = "the log density"
    prior = float(target.log_prior(target.point(point)))
    if not math.isfinite(prior):
        part = "log density" if target.log_likelihood is None else "log prior"
        where = f"the {part} is {prior:g}"
    elif target.log_likelihood is not None:
        rows = np.flatnonzero(~np.isfinite(np.asarray(target.log_likelihoods(point))))
        if rows.size:
            more = "" if rows.size <= SHOWN else f" and {rows.size - SHOWN:,} more"
            shown = ", ".join(map(str, rows[:SHOWN]))
            where = f"the log likelihood of row{'s' if rows.size > 1 else ''} {shown}{more}"
            where += " is not finite"
    if where == "the log density":
        where = "the log density or its gradient is not finite"
    return Finding(
        Status.NON_FINITE,
        f"{where} at any of {count:,} points tried around the start; evaluate target.log_density at a "
        "point of your choice and look for log of a negative number, division by zero or overflow, or "
        "hand in a family that starts where the density is finite",
    )


def partly_finite(share: float) -> Finding:
    """The answer puts draws where the density is zero or not a number."""
    return Finding(
        Status.NON_FINITE,
        f"the log density is NaN or infinite at {share:.1%} of the draws of the best q found, so its "
        "ELBO is not finite; if the density is zero in part of the space, map that part away (log, "
        "logit), otherwise look for overflow far from the mode",
    )
