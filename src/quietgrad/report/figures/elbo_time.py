"""ELBO against wall-clock time, by family (the paper's figure 1, and its rank-5 and mean versions)."""

from ..study import Study
from .plan import Plan
from .trajectories import elbo_grid, plans


def elbo_time(study: Study) -> list[Plan]:
    """One figure per family and statistic."""
    return plans(
        study,
        "elbo-time",
        "ELBO against time",
        "ELBO against seconds of optimisation (compilation and evaluation excluded). Lines are "
        "{statistic}s over repetitions at the same iteration, shaded areas the range. Higher is better.",
        lambda family, statistic: elbo_grid(study, family, "seconds", statistic),
        "elbo",
    )
