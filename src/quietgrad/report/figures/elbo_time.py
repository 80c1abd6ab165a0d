"""ELBO against wall-clock time, by family (the paper's figure 1, and its rank-5 and mean versions)."""

from ..stored_study import StoredStudy
from .plan import Plan
from .trajectories import elbo_grid, plans


def elbo_time(study: StoredStudy) -> list[Plan]:
    """One figure per family and statistic."""
    return plans(
        study,
        "elbo-time",
        "ELBO against time",
        f"ELBO against seconds of optimisation, without compilation and evaluation{_clock(study)}. "
        "Lines are {statistic}s over repetitions, shaded areas the range. Methods that end themselves "
        "end in a dot, and a thin line goes on at their answer. Higher is better; left is sooner.",
        lambda family, statistic: elbo_grid(study, family, "seconds", statistic),
        "elbo",
        timed=True,
    )


def _clock(study: StoredStudy) -> str:
    if study.timing is None:
        return ""
    rounds = max(map(len, study.timing.by_configuration().values()), default=0)
    return f" (steps times the seconds of a step, measured apart in {rounds} interleaved rounds)"
