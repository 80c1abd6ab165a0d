"""Who runs in time_to_target.py: every method that anyone would compare, from one start each."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax

import quietgrad as qg
from quietgrad.samplers import Iid

EVALUATIONS = 40


class Start(NamedTuple):
    """A task, a family, the paper's start of one repetition, and the clock's limit."""

    task: qg.tasks.Task
    family: str
    q: Any
    seconds: float
    stop: qg.Reached | None
    judge: Callable[..., dict[str, float]]
    key: Any

    @property
    def common(self) -> dict[str, Any]:
        """What every method is given."""
        return {"batch_size": self.task.batch_size, "monitor": self.judge, "key": self.key}


def steps_with(start: Start, estimator: Any, **more: Any) -> qg.FitResult:
    """Adam at the paper's rate until the budget ends."""
    rule = optax.adam(start.task.learning_rate(start.family))
    settings = {"optimizer": rule, "progress": False, "evaluation_draws": 2, **start.common, **more}
    settings["estimator"] = estimator
    trial = qg.fit(
        start.task.train, start.q, **{**settings, "monitor": None}, steps=60, evaluate_every=20
    )
    cost = float(np.min(np.diff(trial.history["seconds"]))) / 20
    # Evaluating on all rows is slow when steps see few of them.
    evaluations = 4 * EVALUATIONS if start.task.batch_size is None else EVALUATIONS
    every = max(1, round(start.seconds / evaluations / cost))
    steps = 10 * every * evaluations
    return qg.fit(
        start.task.train,
        start.q,
        **settings,
        steps=steps,
        evaluate_every=every,
        seconds=start.seconds,
        stop=start.stop,
    )


def plain(name: str, **settings: Any) -> Callable[[Start], qg.FitResult]:
    """A registered estimator with Adam at the paper's rate."""
    return lambda start: steps_with(start, qg.estimator(name, **settings))


def automatic(**settings: Any) -> Callable[[Start], qg.FitResult]:
    """`method="auto"`."""

    def run(start: Start) -> qg.FitResult:
        return qg.fit(
            start.task.train, start.q, method="auto", seconds=start.seconds, **start.common, **settings
        )

    return run


def deterministic(**settings: Any) -> Callable[[Start], qg.FitResult]:
    """`method="saa"`; for all rows at once."""

    def run(start: Start) -> qg.FitResult:
        common = {name: value for name, value in start.common.items() if name != "batch_size"}
        return qg.fit(start.task.train, start.q, method="saa", **common, **settings)

    return run


def dadvi(start: Start) -> qg.FitResult:
    """30 fixed independent draws and nothing else, as DADVI does."""
    return deterministic(sampler=Iid(), draws=30, most_draws=30, polish_steps=0, fresh=False)(start)


CANDIDATES: dict[str, Callable[[Start], qg.FitResult]] = {
    "auto": automatic(),
    "saa": deterministic(),
    "quiet": plain("quiet"),
    "rqmc + stl L=8": lambda start: steps_with(
        start, qg.Pathwise(sampler="rqmc", entropy="stl", draws=8)
    ),
    "stl L=10": plain("stl"),
    "quadcv L=10": plain("quadcv"),
    "quadcv-fast L=10": plain("quadcv-fast"),
    "zvcv-gd L=10": plain("zvcv-gd"),
    "auto without climb": automatic(climb=False),
    # To a tenth of a nat, where the others of auto stop at half a nat: QuadCV uses its whole budget too.
    "quiet, auto's rule": automatic(climb=False, estimator=qg.estimator("quiet"), gain=0.1),
    "nocv L=10, auto's rule": automatic(climb=False, estimator=qg.estimator("nocv", draws=10)),
    "nocv L=10, auto's rule and start": automatic(estimator=qg.estimator("nocv", draws=10)),
    "nocv L=10": plain("nocv"),
    "nocv L=50": plain("nocv", draws=50),
    "dadvi": dadvi,
}
FULL_BATCH_ONLY = ("saa", "dadvi", "auto without climb", "nocv L=10, auto's rule and start")
# The richer families have the rows that say how much comes from where.
RICHER = (
    "auto",
    "nocv L=10, auto's rule",
    "nocv L=10, auto's rule and start",
    "nocv L=10",
    "nocv L=50",
)
# These end as soon as they are where the others got, which is all that is asked of them.
END_EARLY = ("nocv L=10", "nocv L=50", "zvcv-gd L=10", "stl L=10", "rqmc + stl L=8")
BASELINES = ("nocv L=10", "nocv L=50")
