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
from ...racing import RaceResult, race
from ...scale.compilation_cache import keep_compiled
from .models import load_model
from .settings import check_family, family_of

FORMAT = 2
# Endings that need no remark: a race ends most runs by its clock.
FINE = ("converged", "budget")


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
    mark = f"first to ELBO {result.mark:.2f} (the best anyone found, minus 1 nat)"
    table = Table(title=f"{escape(title)}, {family}: {mark}", title_justify="left")
    columns = (
        "entrant",
        "seconds",
        "steps",
        "final ELBO",
        "whole wait, s",
        "µs a step",
        "variance × cost",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "entrant" else "right")
    for lane in result.lanes:
        steps = "–" if lane.steps_to_mark is None else f"{lane.steps_to_mark:,}"
        ending = f"{lane.elbo:.2f}" + ("" if lane.status in FINE else f" ({lane.status})")
        table.add_row(
            escape(lane.name),
            "never" if lane.seconds_to_mark is None else f"{lane.seconds_to_mark:.3g}",
            steps,
            ending,
            f"{lane.clock['total']:.1f}",
            "–" if lane.microseconds is None else f"{lane.microseconds:.0f}",
            "–" if lane.noise_cost is None else f"{lane.noise_cost:.2g}",
        )
    console.print(table)
    for name, reason in result.left_out.items():
        console.print(f"left out: {name}: {reason}", markup=False)
    console.print(result.recommendation(), markup=False)


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
