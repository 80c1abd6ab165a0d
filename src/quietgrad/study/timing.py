"""`timing.json`: seconds a step of each configuration of a study, measured apart from its runs.

Long runs beside other work cannot be timed. So trajectories may be run untimed, and a timing pass
measures what a step costs, alone on a machine (`timing_pass`). A report joins the two, without jax.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .._util.files import replacing
from .clock import with_timing
from .jobs import configuration
from .records import Cell, Record
from .store import Store

NAME = "timing.json"
FORMAT = 2


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of a configuration, one value for each round, from bursts of `steps` steps.

    `cell` is one of the cells with this configuration. Where it could not be measured, `rounds` is empty
    and `reason` says why.
    """

    cell: Cell
    rounds: tuple[float, ...]
    steps: int = 0
    reason: str = ""


@dataclass(frozen=True)
class TimingPass:
    """What was measured in one go: when, where, beside how much other work, and the times.

    `others` is the share of the machine's processors that other processes took meanwhile, NaN where the
    system does not tell: above a few hundredths, the machine was not idle.
    """

    measured: str
    environment: Mapping[str, Any]
    others: float
    times: tuple[StepTime, ...]


@dataclass(frozen=True)
class Timing:
    """The passes of a results directory, the earliest first. A pass may measure a part of a study."""

    passes: tuple[TimingPass, ...]

    def by_configuration(self) -> dict[tuple, tuple[float, ...]]:
        """The rounds of each configuration, from the last pass that measured it."""
        return {
            configuration(time.cell): time.rounds
            for each in self.passes
            for time in each.times
            if time.rounds
        }

    def with_pass(self, new: TimingPass) -> "Timing":
        """These passes and a new one; of earlier ones, what it did not measure again."""
        again = {configuration(time.cell) for time in new.times}
        kept = (
            replace(each, times=tuple(t for t in each.times if configuration(t.cell) not in again))
            for each in self.passes
        )
        return Timing((*(each for each in kept if each.times), new))


def read_timing(directory: Path) -> Timing | None:
    """What the timing passes of a results directory found, None if there was none."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); remove it and measure again") from error
    if about.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {about.get('format')!r}; this version reads {FORMAT}. Remove it and "
            "measure again"
        )
    return Timing(tuple(_pass(each) for each in about["passes"]))


def write_timing(directory: Path, timing: Timing) -> None:
    """Store what the passes found, in place of what was there."""
    passes = ",\n".join(_text(each) for each in timing.passes)
    with replacing(directory / NAME) as file:
        file.write(f'{{"format": {FORMAT}, "passes": [\n{passes}\n]}}\n'.encode())


def _pass(about: Mapping[str, Any]) -> TimingPass:
    times = tuple(
        StepTime(Cell(**one["cell"]), tuple(one["rounds"]), one["steps"], one["reason"])
        for one in about["times"]
    )
    others = math.nan if about["others"] is None else float(about["others"])
    return TimingPass(about["measured"], about["environment"], others, times)


def _text(each: TimingPass) -> str:
    """A pass as JSON, a line for each configuration."""
    about = {"measured": each.measured, "environment": dict(each.environment)}
    about["others"] = None if math.isnan(each.others) else each.others
    times = ",\n".join(json.dumps(asdict(time)) for time in each.times)
    return f'{json.dumps(about)[:-1]}, "times": [\n{times}\n]}}'


def configurations(cells: Iterable[Cell]) -> list[Cell]:
    """One cell, the first, of each configuration whose steps cost the same all along."""
    first: dict[tuple, Cell] = {}
    for cell in cells:
        if not cell.ends_itself:
            first.setdefault(configuration(cell), cell)
    return list(first.values())


def read_records(directory: Path) -> list[Record]:
    """Every record of a results directory, with the clock of its timing pass if there was one."""
    records, timing = Store(directory).read_all(), read_timing(directory)
    return records if timing is None else with_timing(records, timing.by_configuration())
