"""`quietgrad study`: run a grid, show what came of it, and make its page."""

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..._util.checks import whole
from ..._util.environment import commit
from ...study import read_spec as specs
from ...study.records import Record
from ...study.store import Store
from ...study.summary import summarise
from ...study.timing import read_records

RESULTS = Path("quietgrad-results")
SHOWN = 5


def run(
    name: str,
    changes: Mapping[str, int | None],
    *,
    out: Path | None,
    only: Sequence[str],
    engine: str,
    fresh: bool,
    report: bool,
) -> int:
    """Run a study with `changes` of reps or steps, print its summary and the path of its page."""
    from ...study.runner import run_study

    spec = specs.load(name).override(**changes)
    directory = RESULTS / spec.name if out is None else out
    command = shlex.join(["quietgrad", *sys.argv[1:]])
    outcome = run_study(spec, directory, only=only, engine=engine, fresh=fresh, command=command)
    records = read_records(directory)
    console = _console()
    if any(record.status == "done" for record in records):
        console.print(summary_table(records))
    print_troubles(console, records)
    console.print(str(outcome), highlight=False)
    if report and not outcome.interrupted:
        _report(console, directory, spec.chapter)
    return outcome.exit_code


def status(directory: Path) -> int:
    """Print how far a study is by its own plan; 0 if it is complete, else 1."""
    store, console = Store(directory), _console()
    about = store.manifest()
    counts = store.count()
    made, now = about["environment"].get("commit"), commit()["commit"]
    console.print(f"{about['spec']['title']} ({about['name']})", markup=False, highlight=False)
    console.print(f"begun {about['created']}, last run {about['updated']}", highlight=False)
    if made and now and made != now:
        console.print(f"made by commit {made[:12]}; this is {now[:12]}, which would run it again")
    for state, count in sorted(counts.items()):
        console.print(f"{count:6d} {state}", highlight=False)
    print_troubles(console, store.read_all())
    return 0 if counts["done"] + counts["skipped"] == counts.total() else 1


def time_steps(
    directory: Path, *, only: Sequence[str], module: Path | None, rounds: int, burst: float
) -> int:
    """Measure seconds a step of every configuration; 1 if some could not be measured."""
    from ...scale.compilation_cache import keep_compiled
    from ...study.timing_pass import time_study

    whole(rounds, "rounds", least=1)
    if not burst > 0:
        raise ValueError(f"burst must be a positive number of seconds; got {burst:g}")
    keep_compiled()
    console = _console()

    def report(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    timing = time_study(directory, only=only, module=module, rounds=rounds, burst=burst, report=report)
    failed = [time for time in timing.times if not time.rounds]
    for time in failed[:SHOWN]:
        report(f"not measured: {time.cell.name}: {time.reason}")
    report(
        f"{len(timing.times) - len(failed)} configurations timed; `quietgrad report {directory}` uses it"
    )
    return 1 if failed else 0


def show_specs() -> int:
    """Print the studies that come with the package."""
    table = Table(show_header=False, box=None)
    for name in specs.shipped():
        spec = specs.load(name)
        table.add_row(f"[bold]{name}[/bold]", escape(" ".join([spec.title, spec.description])))
    _console().print(table)
    return 0


def summary_table(records: Sequence[Record]) -> Table:
    """Medians over repetitions, a line for each task, family, estimator or method, and draws."""
    table = Table(title="Medians over repetitions; target: within 1 nat of the best on task and family")
    for heading in ("task", "family", "row"):
        table.add_column(heading)
    for heading in ("L", "ELBO", "seconds", "s to target", "steps to target", "variance ratio"):
        table.add_column(heading, justify="right")
    before = None
    for row in summarise(records):
        if before not in (None, (row.task, row.family)):
            table.add_section()
        before = row.task, row.family
        table.add_row(
            escape(row.task),
            escape(row.family),
            escape(row.label),
            "" if row.draws is None else str(row.draws),
            _number(row.elbo, ",.1f"),
            _number(row.seconds, ".2f"),
            row.shortfall or _number(row.seconds_to_target, ".2g"),
            _number(row.steps_to_target, ",.0f"),
            _number(row.variance_ratio, ".3g"),
        )
    return table


def print_troubles(console: Console, records: Sequence[Record]) -> None:
    """Say why cells failed, timed out or were skipped; each reason once, with how many cells have it."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.status != "done":
            reasons.setdefault((record.status, record.reason), []).append(record.cell.name)
    for (state, reason), names in list(reasons.items())[:SHOWN]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        console.print(f"{state}: {names[0]}{more}: {reason}", markup=False, highlight=False)
    if len(reasons) > SHOWN:
        console.print(f"... and {len(reasons) - SHOWN} other reasons", highlight=False)


def _report(console: Console, directory: Path, chapter: Path | None) -> None:
    try:
        from ...report import build
    except ImportError as error:
        console.print(f"no page: {error}", markup=False)
        return
    console.print(f"page: {build(directory, chapter=chapter)}", markup=False, highlight=False)


def _console() -> Console:
    """Standard output; a file or a pipe gets wide lines rather than broken ones."""
    console = Console(soft_wrap=not sys.stdout.isatty())
    return console if console.is_terminal else Console(width=140, soft_wrap=True)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None or math.isnan(value) else format(value, form)
