"""ELBO against iterations, by family."""

from ..stored_study import StoredStudy
from .plan import Plan
from .trajectories import elbo_grid, plans


def elbo_iteration(study: StoredStudy) -> list[Plan]:
    """One figure per family and statistic."""
    return plans(
        study,
        "elbo-iteration",
        "ELBO against iterations",
        "ELBO against optimisation steps. Lines are {statistic}s over repetitions, shaded areas the "
        "range. Higher is better. Methods that end themselves are left out: their steps differ in kind.",
        lambda family, statistic: elbo_grid(study, family, "step", statistic),
        "elbo",
    )
