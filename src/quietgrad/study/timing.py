"""`timing.json`: seconds a step of each configuration of a study, measured apart from its runs.

Long runs beside other work cannot be timed. So trajectories may be run untimed, and a timing pass
measures what a step costs, alone on a machine (`timing_pass`). A report joins the two, without jax.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._atomic import replacing
from .clock import with_timing
from .jobs import configuration
from .records import Cell, Record
from .store import Store

NAME = "timing.json"
FORMAT = 1


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
class Timing:
    """A timing pass: when and where it was made, how busy the machine was, and what it found.

    `load` is the machine's load average just before: above a few tenths, other work was running.
    """

    measured: str
    environment: Mapping[str, Any]
    load: float
    times: tuple[StepTime, ...]

    def by_configuration(self) -> dict[tuple, tuple[float, ...]]:
        """The rounds of each configuration."""
        return {configuration(time.cell): time.rounds for time in self.times if time.rounds}


def read_timing(directory: Path) -> Timing | None:
    """The timing pass of a results directory, None if there was none."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); remove it and measure again") from error
    if about.get("format") != FORMAT:
        raise ValueError(f"{path} has format {about.get('format')!r}; this version reads {FORMAT}")
    times = tuple(
        StepTime(Cell(**one["cell"]), tuple(one["rounds"]), one["steps"], one["reason"])
        for one in about["times"]
    )
    return Timing(about["measured"], about["environment"], about["load"], times)


def write_timing(directory: Path, timing: Timing) -> None:
    """Store a timing pass in place of any earlier one."""
    text = json.dumps({"format": FORMAT, **asdict(timing)}, indent=1)
    with replacing(directory / NAME) as file:
        file.write(text.encode())


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
