"""Seconds to within 1 nat of the best ELBO: runs specs/time_to_target.toml and prints its table.

Run from the repository: python benchmarks/time_to_target.py [--only task=frisk ...] [--table]
It is `quietgrad study benchmarks/specs/time_to_target.toml` with another table at the end. Finished
cells stay in results/time_to_target/, each with its own environment and commit, and a second call does
what is missing; `--table` prints what is there. results/time_to_target.json holds what the script that
this one replaces measured with version 0.1.0; there, one commit stands for all rows.
"""

import argparse
import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from quietgrad.study.read_spec import load
from quietgrad.study.records import Record
from quietgrad.study.runner import run_study
from quietgrad.study.summary import Arrival, Row, summarise, time_to_target
from quietgrad.study.timing import read_records

HERE = Path(__file__).parent
SPEC, RESULTS = HERE / "specs" / "time_to_target.toml", HERE / "results" / "time_to_target"
PLAIN = "nocv"


def table(records: list[Record]) -> Table:
    """Median and range over starts, and how many times sooner than the best of plain gradients."""
    made = Table(title="seconds to within 1 nat of the best (median and range over starts)")
    for column in ("task", "family", "row", "L", "arrived", "seconds", "x sooner than NoCV", "ELBO"):
        made.add_column(column)
    arrivals, rows, last = time_to_target(records), summarise(records), None
    for row in rows:
        place = (row.task, row.family)
        if place != last:
            made.add_section()
        last = place
        plain = [r.seconds_to_target for r in rows if (r.task, r.family, r.label) == (*place, PLAIN)]
        best = min((time for time in plain if time is not None), default=math.nan)
        mine = row.seconds_to_target
        own = [one for one in arrivals if _belongs(one, row)]
        made.add_row(
            *place,
            row.label,
            "" if row.draws is None else str(row.draws),
            f"{row.arrived}/{row.reps}",
            row.shortfall if mine is None else f"{mine:.3g} ({_range(own)})",
            "" if mine is None or math.isnan(best) else f"{best / mine:.2g}",
            f"{row.elbo:.2f}",
        )
    return made


def _belongs(arrival: Arrival, row: Row) -> bool:
    names = ("group", "task", "family", "label", "draws", "method")
    return all(getattr(arrival.record.cell, name) == getattr(row, name) for name in names)


def _range(arrivals: list[Arrival]) -> str:
    times = [math.inf if one.seconds is None else one.seconds for one in arrivals]
    return f"{min(times):.3g} to {max(times):.3g}"


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="key=value, as quietgrad study has it")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if not arguments.table:
        command = "python benchmarks/time_to_target.py"
        print(run_study(load(str(SPEC)), RESULTS, only=arguments.only, command=command))
    Console(width=140).print(table(read_records(RESULTS)))


if __name__ == "__main__":
    main()
