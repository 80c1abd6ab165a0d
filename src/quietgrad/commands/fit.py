"""`quietgrad fit`: one family, one task, one table."""

import json
from pathlib import Path
from typing import Any

import jax.random as jr
import optax
from rich.console import Console
from rich.table import Table

from .. import tasks
from .._checks import lookup
from ..environment import environment
from ..estimators import estimator as by_name
from ..families import REGISTRY as FAMILIES
from ..loop import fit
from ..metrics import lppd
from ..results import FitResult, Status

FORMAT = 1


def fit_task(
    name: str,
    *,
    family: str,
    estimator: str,
    draws: int | None,
    steps: int,
    learning_rate: float | None,
    seed: int,
    json_path: Path | None,
) -> int:
    """Fit, print, and return the exit code: 0, or 1 if the run turned non-finite."""
    make_family = lookup(FAMILIES, family, "family")
    made = by_name(estimator) if draws is None else by_name(estimator, draws=draws)
    task = tasks.load(name)
    rate = task.learning_rate(family) if learning_rate is None else learning_rate
    key_start, key_fit, key_test = jr.split(jr.key(seed), 3)
    q = make_family.init(task.dim, key=key_start)
    optimizer = optax.adam(rate)
    result = fit(
        task.train,
        q,
        estimator=made,
        optimizer=optimizer,
        steps=steps,
        batch_size=task.batch_size,
        key=key_fit,
    )
    report: dict[str, Any] = {
        "task": name,
        "title": task.title,
        "family": family,
        "estimator": estimator,
        "draws": made.draws_for(q),
        "learning_rate": rate,
        "steps": result.steps,
        "seed": seed,
        "status": str(result.status),
        "elbo": result.elbo,
        "elbo_error": result.elbo_error,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
    }
    if task.test is not None:
        report["test_lppd"] = float(lppd(task.test, result.q, key=key_test))
        report["test_rows"] = task.test.rows
    _print(report, result)
    if json_path is not None:
        _write(json_path, report, result)
    return 1 if result.status is Status.NON_FINITE else 0


def _print(report: dict[str, Any], result: FitResult) -> None:
    console = Console()
    table = Table(title=report["title"], show_header=False, title_justify="left")
    table.add_row("family", f"{report['family']}, {result.q.dim} dimensions")
    table.add_row("estimator", f"{report['estimator']}, {report['draws']} draws a step")
    table.add_row("ELBO", f"{report['elbo']:.2f} ± {report['elbo_error']:.2f} nats")
    if "test_lppd" in report:
        per_row = report["test_lppd"] / report["test_rows"]
        table.add_row(
            "test lppd",
            f"{report['test_lppd']:.2f} ({per_row:.3f} for each of {report['test_rows']} rows)",
        )
    table.add_row("optimisation", f"{report['seconds']:.2f} s for {report['steps']:,} steps")
    table.add_row("compilation", f"{report['compile_seconds']:.2f} s")
    table.add_row("status", f"{report['status']}: {result.hint}")
    console.print(table)


def _write(path: Path, report: dict[str, Any], result: FitResult) -> None:
    history = {name: column.tolist() for name, column in result.history.items()}
    document = {"format": FORMAT, **report, "history": history, "environment": environment()}
    path.write_text(json.dumps(document, indent=1) + "\n")
