"""Hyperparameters without a best value."""

import numpy as np
from jaxtyping import Float

from ...status import Status
from ...targets.coordinates import coordinate_name
from .finding import Finding
from .probe import LogDensityProbe
from .rays import in_pieces
from .settings import DEFAULT, Propriety


def unbounded_hyperparameter(
    probe: LogDensityProbe,
    points: Float[np.ndarray, "points dim"],
    least: float,
    settings: Propriety = DEFAULT,
) -> Finding | None:
    """Whether far along a hyperparameter the log density is `least` nats higher than at the answer.

    It is the mean over q's draws. A hyperparameter that has a best value is worse far from it on both
    sides. An infinite value is overflow, which says nothing.
    """
    dim = points.shape[1]
    for index in range(probe.own(dim), dim)[: settings.most_coordinates]:
        here = points[0, index]
        span = settings.farthest(probe.dtype) * max(1.0, abs(here))
        moved = np.repeat(points[None], 3, axis=0)
        moved[1:, :, index] += np.array([[span], [-span]])
        moved = moved.reshape(-1, dim)
        found = in_pieces(probe.values, lambda piece, z=moved: z[piece], len(moved), dim, settings)
        with np.errstate(all="ignore"):
            found = found.reshape(3, -1).mean(axis=1)
        for shift, value in zip((span, -span), found[1:], strict=True):
            if np.isfinite(value) and value >= found[0] + least:
                return Finding(
                    Status.UNBOUNDED,
                    f"{coordinate_name(probe.target, index)} is a hyperparameter without a best value: "
                    f"the log density is {found[0]:.4g} at {here:.4g}, {value:.4g} at "
                    f"{here + shift:.0e}; more steps do not help: bound it by another parametrisation, "
                    "or add the log of a prior for it to log_prior",
                )
    return None
