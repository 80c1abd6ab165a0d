"""The stored study as tables and statements need it: rows, paired differences, one statistic for all.

The statistic of a run is the mean ELBO over the last tenth of its evaluations (`late_elbo`), whatever
its estimator and step rule; a method that ends itself has the ELBO of its answer, which it returns.
Differences are paired: rows of a repetition share the start and the evaluation draws. Intervals are
Student's t, 90%, over the repetitions that both sides have. Two judges evaluated the ELBO; a difference
between rows of two of them is an error, unless it is asked for. What rows of both are compared by is
how far each ends above plain gradients, which both judges have (`above_plain`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from quietgrad.report.chapter import import_package
from quietgrad.report.stored_study import StoredStudy, load
from quietgrad.study.claim import Claim
from quietgrad.study.interval import Interval, geometric, mean
from quietgrad.study.plateau import late_elbo, on_plateau, tail_mean
from quietgrad.study.records import Record
from quietgrad.study.summary import Arrival, Row, late_variance_ratio, summarise, time_to_target

HERE = Path(__file__).parent
TASKS = ("a1a", "frisk", "redwine-mini", "redwine")
NETWORKS = ("redwine-mini", "redwine")
FAMILIES = {"mean-field": "mean-field", "low-rank": "rank 5", "real-nvp": "Real NVP"}
ESTIMATORS = ("nocv", "zvcv-gd", "quadcv")
PLACES = tuple((task, family) for family in FAMILIES for task in TASKS)

# Group, label and draws: a row of the study on a task and family.
Key = tuple[str, str, int | None]


def paper(label: str, draws: int) -> Key:
    """A row of the paper's grid."""
    return "main", label, draws


def falling(label: str, draws: int) -> Key:
    """The same with a step size that falls to zero."""
    return "decay", f"{label}{'' if draws == 10 else f' {draws}'}, decaying", None


def plain(family: str) -> Key:
    """NoCV with ten draws at a constant step, by the judge of the rows that are not the paper's."""
    return "entropy" if family == "low-rank" else "judge", "nocv", 10


@dataclass(frozen=True)
class Results:
    """What tables and statements are made from."""

    study: StoredStudy

    @cached_property
    def rows(self) -> list[Row]:
        """Medians over repetitions, as the report has them."""
        return summarise(self.study.records)

    @cached_property
    def claims(self) -> list[Claim]:
        """The paper's claims, judged."""
        return import_package(HERE / "paper").judge(self.study.records)

    @cached_property
    def arrivals(self) -> dict[str, Arrival]:
        """When each run came within a nat of the best, and stayed; by the name of its cell."""
        return {each.record.cell.name: each for each in time_to_target(self.study.records)}

    @cached_property
    def _runs(self) -> dict[tuple, dict[int, Record]]:
        found: dict[tuple, dict[int, Record]] = {}
        for record in self.study.done:
            cell = record.cell
            place = (cell.task, cell.family, cell.group, cell.label, cell.draws)
            found.setdefault(place, {})[cell.rep] = record
        return found

    def runs(self, task: str, family: str, key: Key) -> dict[int, Record]:
        """The finished repetitions of a row."""
        return self._runs.get((task, family, *key), {})

    def shared(self, task: str, family: str, keys: Iterable[Key]) -> tuple[int, ...]:
        """The repetitions that all of these rows have which were run at all."""
        known = [set(runs) for key in keys if (runs := self.runs(task, family, key))]
        return tuple(sorted(set.intersection(*known))) if known else ()

    def quiet(self, task: str, family: str) -> Key:
        """`quiet` with the draws that it takes by itself: two for a mean-field Gaussian, else ten."""
        del task
        return ("main", "quiet, 2 draws", None) if family == "mean-field" else ("main", "quiet", 10)

    def row(self, task: str, family: str, key: Key) -> Row | None:
        """The medians of a row, None if it was not run."""
        group, label, draws = key
        wanted = (group, task, family, label, draws)
        found = (r for r in self.rows if (r.group, r.task, r.family, r.label, r.draws) == wanted)
        return next(found, None)

    def level(self, task: str, family: str, key: Key, reps: Sequence[int] = ()) -> Interval | None:
        """The mean over repetitions of where runs end; over these repetitions if they are given."""
        runs = self.runs(task, family, key)
        values = [late_elbo(runs[rep]) for rep in (reps or runs) if rep in runs]
        return mean(values) if values else None

    def gain(
        self,
        task: str,
        family: str,
        key: Key,
        over: Key,
        *,
        measure: Callable[[Record], float] = late_elbo,
        reps: Sequence[int] = (),
        across_judges: bool = False,
    ) -> Interval | None:
        """How far one row ends above another, paired; None if they share no repetition.

        Over these repetitions if they are given, else over all that both rows have. Rows of two judges
        are refused, unless it is their difference that is asked for.
        """
        ours, theirs = self.runs(task, family, key), self.runs(task, family, over)
        return paired(ours, theirs, measure, reps, across_judges=across_judges)

    def above_plain(self, task: str, family: str, key: Key) -> Interval | None:
        """How far a row ends above plain gradients with ten draws that its own judge has seen.

        Over the repetitions that both judges have of those: what rows of two judges are compared by.
        """
        bases = (paper("nocv", 10), plain(family))
        seen = {judge(run) for run in self.runs(task, family, key).values()}
        for base in bases:
            if seen == {judge(run) for run in self.runs(task, family, base).values()}:
                reps = self.shared(task, family, (key, *bases))
                return self.gain(task, family, key, base, reps=reps)
        return None

    def ratio(self, task: str, family: str, key: Key, reps: Sequence[int] = ()) -> Interval | None:
        """The late variance ratio to NoCV, geometric mean over (these) repetitions."""
        runs = self.runs(task, family, key)
        found = [late_variance_ratio(runs[rep]) for rep in (reps or runs) if rep in runs]
        known = [ratio for ratio in found if ratio > 0]
        return geometric(known) if known else None

    def rising(self, task: str, family: str, key: Key, reps: Sequence[int] = ()) -> int:
        """How many of (these) repetitions of a row were still rising at their end."""
        runs = self.runs(task, family, key)
        here = [runs[rep] for rep in (reps or runs) if rep in runs]
        return sum(not on_plateau(run) and not broken(run) for run in here)

    def broken(self, task: str, family: str, key: Key, reps: Sequence[int] = ()) -> int:
        """How many of (these) repetitions of a row turned non-finite."""
        runs = self.runs(task, family, key)
        return sum(broken(runs[rep]) for rep in (reps or runs) if rep in runs)


def paired(
    ours: Mapping[int, Record],
    theirs: Mapping[int, Record],
    measure: Callable[[Record], float] = late_elbo,
    reps: Sequence[int] = (),
    *,
    across_judges: bool = False,
) -> Interval | None:
    """The mean difference between two rows, as `Results.gain` has it."""
    judges = {judge(run) for run in (*ours.values(), *theirs.values())}
    if len(judges) > 1 and measure is late_elbo and not across_judges:
        sides = (next(iter(runs.values())).cell.name for runs in (ours, theirs) if runs)
        raise ValueError(f"rows of two judges: {' and '.join(sides)}")
    both = sorted(ours.keys() & theirs.keys() & set(reps or ours))
    gaps = [measure(ours[rep]) - measure(theirs[rep]) for rep in both]
    known = [gap for gap in gaps if math.isfinite(gap)]
    return mean(known) if known else None


def judge(record: Record) -> str:
    """How the ELBOs of a run were evaluated."""
    return str(record.outcome.get("judge"))


def broken(record: Record) -> bool:
    """Whether the parameters turned NaN or infinite before the run's last step."""
    return record.outcome.get("fit_status") == "non-finite"


def late_lppd(record: Record) -> float:
    """The mean test lppd over the last tenth of the evaluations that have one."""
    return tail_mean(record.column("lppd"))


def clearly(interval: Interval | None, margin: float = 0.0) -> int:
    """1 if the whole interval is above the margin, -1 if it is below minus the margin, else 0."""
    if interval is None or interval.reps < 2:
        return 0
    return (interval.low > margin) - (interval.high < -margin)


def step_ratio(results: Results, place: tuple[str, str], key: Key, over: Key) -> Interval | None:
    """Seconds of a step over those of another row, geometric mean over the rounds of the timing pass."""
    from quietgrad.study.clock import rounds

    both = [next(iter(results.runs(*place, each).values()), None) for each in (key, over)]
    if any(run is None for run in both):
        return None
    ours, theirs = (np.asarray(rounds(run)) for run in both if run is not None)
    if not len(ours) or len(ours) != len(theirs):
        return None
    return geometric((ours / theirs).tolist())


def read(folder: Path = HERE) -> Results:
    """The results of a folder."""
    return Results(load(folder))
