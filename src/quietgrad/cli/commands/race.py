"""`quietgrad race`: a user's model, or a built-in task, on the track."""

import json
from collections.abc import Sequence
from pathlib import Path

import jax.random as jr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..._util.environment import environment
from ..._util.extras import needs_extra
from ..._util.files import check_place, write_whole
from ...racing import COLUMNS, RaceResult, race
from ...scale.compilation_cache import keep_compiled
from .models import load_model
from .settings import check_family, family_of

FORMAT = 2
# Endings that need no remark: a race ends most runs by its clock.


def race_command(
    model: str | None,
    *,
    task: str | None,
    family: str,
    rank: int | None = None,
    data: Path | None = None,
    arguments: Sequence[str] = (),
    seconds: float,
    learning_rate: float,
    batch_size: int | None,
    seed: int,
    json_path: Path | None,
    plot_path: Path | None,
) -> int:
    """Run the race, print it, and write what was asked for."""
    name = model if task is None else task
    if name is None or None not in (model, task):
        raise ValueError("name a model (my_model.py:target) or a built-in --task, not both")
    check_family(family, rank, any_family=False)
    check_place(json_path)
    check_place(plot_path)
    keep_compiled()
    found = load_model(name, data, arguments)
    target, title = found.target, found.title
    batch_size = found.batch_size if batch_size is None else batch_size
    found.check_dim()
    key = jr.key(seed)
    result = race(
        target,
        family_of(family, rank, found, key),
        seconds=seconds,
        learning_rate=learning_rate,
        batch_size=batch_size,
        key=key,
    )
    _print(title, family, result)
    if json_path is not None:
        document = {
            "format": FORMAT,
            "title": title,
            "family": family,
            "seed": seed,
            "budget_seconds": seconds,
            "mark": result.mark,
            "recommendation": result.recommendation(),
            "left_out": result.left_out,
            "lanes": result.rows(),
            "environment": environment(),
        }
        write_whole(json_path, json.dumps(document, indent=1) + "\n")
    if plot_path is not None:
        _plot(plot_path, title, result)
    return 0


def _print(title: str, family: str, result: RaceResult) -> None:
    console = Console()
    table = Table(title=f"{escape(title)}, {family}: {result.title}", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "entrant" else "right")
    for lane in result.lanes:
        table.add_row(*map(escape, lane.cells()))
    console.print(table)
    for note in result.notes():
        console.print(note, markup=False)


def _plot(path: Path, title: str, result: RaceResult) -> None:
    with needs_extra("plot", "--plot"):
        import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for lane in result.lanes:
        axes.plot(lane.seconds, lane.elbos, label=lane.name, linewidth=1.5)
    axes.axhline(result.mark, color="black", linewidth=0.8, linestyle=":", label="best − 1 nat")
    top = result.mark + 1.0
    axes.set_ylim(top - 40, top + 4)
    axes.set_xscale("log")
    axes.set_xlabel("seconds of optimisation")
    axes.set_ylabel("ELBO (nats)")
    axes.set_title(title)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
