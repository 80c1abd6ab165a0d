"""ELBO against iterations, by family."""

from ..study import Study
from .plan import Plan
from .trajectories import elbo_grid, plans


def elbo_iteration(study: Study) -> list[Plan]:
    """One figure per family and statistic."""
    return plans(
        study,
        "elbo-iteration",
        "ELBO against iterations",
        "ELBO against optimisation steps. Lines are {statistic}s over repetitions, shaded areas the "
        "range. Higher is better.",
        lambda family, statistic: elbo_grid(study, family, "step", statistic),
        "elbo",
    )
