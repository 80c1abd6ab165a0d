"""The records that claims are judged by: the paper's estimators on the paper's models.

Where a study has no run on the paper's data, the embedded task with the same kind of model stands in
for it, and the claim says so.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from quietgrad.study.clock import Clock, clock_of, rounds
from quietgrad.study.plateau import on_plateau
from quietgrad.study.records import Record
from quietgrad.study.summary import Arrival, finished, problem, time_to_target

ESTIMATORS = ("nocv", "zvcv-gd", "quadcv")
TITLES = {"nocv": "NoCV", "zvcv-gd": "ZVCV-GD", "quadcv": "QuadCV"}
FAMILIES = ("mean-field", "low-rank", "real-nvp")
GAUSSIANS = ("mean-field", "low-rank")
DRAWS = (10, 50)

# The models of the paper: its data first, then what stands in for it.
LOGISTIC = ("a1a", "breast-cancer")
POISSON = ("frisk", "counts")
NETWORK_BATCHES = ("redwine-mini", "diabetes-mini")
NETWORK = ("redwine", "diabetes")
MODELS = (LOGISTIC, POISSON, NETWORK_BATCHES, NETWORK)
NETWORKS = (NETWORK_BATCHES, NETWORK)

# Within so many nats of the best, an ELBO is "respectable" (the paper does not give a number).
RESPECTABLE = 10.0

Model = tuple[str, str]
Setting = tuple[Model, str, int]
Match = tuple[Record, ...]


class Evidence:
    """Finished records with an ELBO, by model, family, label and draws, paired by repetition."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._runs: dict[tuple[str, str, str, str, int | None], dict[int, Record]] = {}
        for record in finished(records):
            cell = record.cell
            if not np.any(np.isfinite(record.elbo)):
                continue
            key = (cell.group, cell.task, cell.family, cell.label, cell.draws)
            self._runs.setdefault(key, {})[cell.rep] = record
        self._tasks = {key[1] for key in self._runs}
        self._respectable: dict[str, Arrival] | None = None

    @property
    def accelerated(self) -> bool:
        """Whether the runs were made on a graphics card or the like."""
        return any(
            record.environment.get("backend") not in (None, "cpu")
            for runs in self._runs.values()
            for record in runs.values()
        )

    def has_group(self, group: str) -> bool:
        """Whether there are runs in a group."""
        return any(key[0] == group for key in self._runs)

    def task(self, model: Model) -> str | None:
        """The paper's data set if the study has it, else its stand-in, else None."""
        return next((task for task in model if task in self._tasks), None)

    def models(self, models: Sequence[Model] = MODELS) -> list[Model]:
        """Those models for which there is a task."""
        return [model for model in models if self.task(model) is not None]

    def stand_ins(self, models: Sequence[Model] = MODELS) -> str:
        """A sentence that names the tasks which stand in for the paper's, or nothing."""
        pairs = [(self.task(model), model[0]) for model in models]
        swaps = [f"{task} for {name}" for task, name in pairs if task not in (None, name)]
        return f"judged on stand-ins for the paper's data: {', '.join(swaps)}" if swaps else ""

    def tested(self, settings: Iterable[Setting]) -> str:
        """A sentence that names the tasks and families in these settings."""
        families: dict[str, dict[str, None]] = {}
        for model, family, _ in settings:
            families.setdefault(str(self.task(model)), {})[family] = None
        tasks: dict[str, list[str]] = {}
        for task, names in families.items():
            tasks.setdefault(", ".join(names), []).append(task)
        places = "; ".join(f"{', '.join(names)} ({family})" for family, names in tasks.items())
        return f"measured on {places}" if places else ""

    def match(self, setting: Setting, *labels: str, group: str = "main") -> list[Match]:
        """The records of these labels in the repetitions that all of them have."""
        model, family, draws = setting
        return self.join(*((model, family, label, draws) for label in labels), group=group)

    def join(self, *runs: tuple[Model, str, str, int], group: str = "main") -> list[Match]:
        """As `match`, for runs of different models, families or draws."""
        found = [
            self._runs.get((group, str(self.task(model)), family, label, draws), {})
            for model, family, label, draws in runs
        ]
        common = set.intersection(*(set(by_rep) for by_rep in found)) if found else set()
        return [tuple(by_rep[rep] for by_rep in found) for rep in sorted(common)]

    def ended(self, setting: Setting, *labels: str, group: str = "main") -> tuple[list[Match], str]:
        """As `match`, for claims about the end of a run: where every run has reached a plateau.

        Also a remark on how many repetitions that leaves, empty if it is all of them.
        """
        return plateaus(self.match(setting, *labels, group=group))

    def clock(self, settings: Iterable[Setting]) -> str:
        """A sentence on where seconds come from, or nothing if the cells have their own."""
        found = [
            run
            for setting in settings
            for label in ESTIMATORS
            for (run,) in self.match(setting, label)
            if clock_of(run) is Clock.TIMING_PASS
        ]
        if not found:
            return ""
        spreads = [
            np.ptp(np.quantile(rounds(run), (0.25, 0.75))) / np.median(rounds(run)) for run in found
        ]
        return (
            "seconds are steps times the seconds of a step, measured apart in "
            f"{len(rounds(found[0]))} interleaved rounds (middle half of them within "
            f"{float(np.median(spreads)):.1%})"
        )

    def settings(
        self,
        *labels: str,
        models: Sequence[Model] = MODELS,
        families: Sequence[str] = FAMILIES,
        draws: Sequence[int] = DRAWS,
    ) -> list[Setting]:
        """Where all these labels were run, in some repetition."""
        every = ((m, f, d) for m in self.models(models) for f in families for d in draws)
        return [setting for setting in every if self.match(setting, *labels)]

    def respectable(self, record: Record) -> Arrival:
        """When a record of the paper's estimators came near the best that these reached.

        Never, if none of them has reached a plateau.
        """
        if self._respectable is None:
            ours = [
                record
                for (group, _, _, label, _), runs in self._runs.items()
                if group == "main" and label in ESTIMATORS
                for record in runs.values()
            ]
            # The best of runs that are all still rising is not what they will reach.
            known = {problem(record) for record in ours if on_plateau(record)}
            self._respectable = {
                arrival.record.cell.name: arrival
                if problem(arrival.record) in known
                else replace(arrival, seconds=None, steps=None)
                for arrival in time_to_target(ours, nats=RESPECTABLE)
            }
        return self._respectable[record.cell.name]


def plateaus(
    matches: Sequence[Match], arrived: Callable[[Record], bool] = on_plateau
) -> tuple[list[Match], str]:
    """The matches in which every run has reached a plateau, and a remark if that is not all of them."""
    ended = [match for match in matches if all(map(arrived, match))]
    if len(ended) == len(matches):
        return ended, ""
    return ended, f" (in the {len(ended)} of {len(matches)} repetitions that reached a plateau)"


def by_rep(values: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    """Numbers collected by their repetition."""
    collected: dict[int, list[float]] = {}
    for rep, value in values:
        collected.setdefault(rep, []).append(value)
    return collected
