"""The timing pass: seconds a step of every configuration of a study, alone on this machine.

All programs are compiled first. Then come rounds: in each, every configuration takes one short burst of
steps, in an order that is shuffled again, so that whatever slows the machine down for a while does not
fall on one of them.
"""

import dataclasses
import datetime
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from .._util.environment import current_environment
from .adapter import refusal
from .jobs import CellJob, EvaluationSchedule, seed_of
from .locks import host_lock
from .other_work import OtherWork
from .plan import selected
from .precompile import precompile
from .records import Cell
from .run_cell import explain, fit_parts, make
from .store import Store
from .timing import StepTime, Timing, TimingPass, configurations, read_timing, write_timing

ROUNDS = 9
# Seconds of a burst: long against the clock's resolution and the start of a program.
BURST = 0.2
FIRST_STEPS = 20
MOST_STEPS = 100_000
# Evaluations are off the clock and are not stored.
SCHEDULE = EvaluationSchedule(MOST_STEPS, 2, 0, 20, 0, 1, light_evaluation=True)
# The share of the processors above which other work is reported.
BUSY = 0.05

Report = Callable[[str], None]


def time_study(
    directory: Path,
    *,
    only: Sequence[str] = (),
    module: Path | None = None,
    rounds: int = ROUNDS,
    burst: float = BURST,
    report: Report,
) -> TimingPass:
    """Measure every configuration that a results directory plans or holds, and store `timing.json`.

    `only` narrows it to some cells, as in `plan.selected`; what was found of the others stays.
    `module` is the Python file that the study's spec names, if it names one.
    """
    store = Store(directory)
    cells = [planned.cell for planned in store.planned()]
    cells = cells or [record.cell for record in store.read_all()]
    if not cells:
        raise FileNotFoundError(f"no results in {directory}: run `quietgrad study` first")
    _check_module(store, module)
    before = read_timing(directory) or Timing(())
    chosen = [cell for _, cell in selected(((None, cell) for cell in cells), only)]
    jobs = [_job(cell, module) for cell in configurations(chosen)]
    with host_lock(lambda: report("waiting: another timed study is running on this host")):
        report(f"{len(jobs)} configurations to compile, then {rounds} rounds of {burst:g} s for each")
        precompile(jobs)
        meanwhile = OtherWork()
        times = measure(jobs, rounds=rounds, burst=burst, report=report)
        others = meanwhile.share()
    if others > BUSY:
        report(f"other work took {others:.0%} of the processors: measure again on an idle machine")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = TimingPass(now, current_environment(), others, tuple(times))
    write_timing(directory, before.with_pass(found))
    return found


def measure(jobs: Sequence[CellJob], *, rounds: int, burst: float, report: Report) -> list[StepTime]:
    """Seconds of a step of each job in each round."""
    steps: dict[int, int] = {}
    reasons: dict[int, str] = {}
    for place, job in enumerate(jobs):
        try:
            # Twice: what the first one compiles is not in the second.
            pace = [burst_seconds(job, FIRST_STEPS) for _ in range(2)][1] / FIRST_STEPS
            steps[place] = min(MOST_STEPS, max(FIRST_STEPS, round(burst / max(pace, 1e-9))))
        except Exception as error:  # noqa: BLE001 - it is reported, and the others go on
            reasons[place] = explain(error)
    found: dict[int, list[float]] = {place: [] for place in steps}
    order = list(steps)
    for number in range(rounds):
        random.Random(number).shuffle(order)
        for place in order:
            found[place].append(burst_seconds(jobs[place], steps[place]) / steps[place])
        report(f"round {number + 1} of {rounds}")
    return [
        StepTime(job.cell, tuple(found.get(place, ())), steps.get(place, 0), reasons.get(place, ""))
        for place, job in enumerate(jobs)
    ]


def burst_seconds(job: CellJob, steps: int) -> float:
    """Seconds of optimisation of this many steps from the job's initial point."""
    parts = make(job)
    refused = refusal(parts.method, parts.task.train, parts.q, job.cell.batch_size)
    if refused is not None:
        raise ValueError(refused)
    run = fit_parts(job, parts, lambda q, state, step: {}, steps)
    if run.steps < steps:
        raise ValueError(f"it took {run.steps} of {steps} steps ({run.status})")
    return float(run.history["seconds"][-1])


def _job(cell: Cell, module: Path | None) -> CellJob:
    first = dataclasses.replace(cell, rep=0, settings=dict(cell.settings))
    seed = seed_of(cell.task, cell.family, 0)
    return CellJob(first, SCHEDULE, seed, module=None if module is None else str(module.resolve()))


def _check_module(store: Store, module: Path | None) -> None:
    spec = store.manifest().get("spec") if (store.root / "manifest.json").exists() else None
    named = spec.get("module") if isinstance(spec, dict) else None
    if named and module is None:
        raise ValueError(f"this study has models of its own in {named}; name that file with --module")
