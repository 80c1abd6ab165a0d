"""Variance of the gradient relative to NoCV with the same draws, against iterations, by family."""

from ..stored_study import StoredStudy
from .plan import Plan
from .trajectories import plans, ratio_grid


def variance_ratio(study: StoredStudy) -> list[Plan]:
    """One figure per family and statistic."""
    return plans(
        study,
        "variance-ratio",
        "Variance ratio",
        "Variance of the gradient estimate over that of NoCV from the same draws: {statistic}s over "
        "repetitions, single repetitions left out as in the paper. Lower is better.",
        lambda family, statistic: ratio_grid(study, family, statistic),
        "variance_ratio",
    )
