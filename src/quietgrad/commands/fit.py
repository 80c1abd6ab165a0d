"""`quietgrad fit`: one model, one family, one table."""

import json
from pathlib import Path
from typing import Any

import jax.random as jr
import optax
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .._checks import lookup
from ..compilation_cache import keep_compiled
from ..environment import environment
from ..estimators import AbstractEstimator
from ..estimators import estimator as by_name
from ..families import REGISTRY as FAMILIES
from ..fitting import ANY_FAMILY, fit
from ..methods import REGISTRY as METHODS
from ..methods import AbstractMethod, Auto, Sgd
from ..metrics import lppd
from ..results import FitResult, Status
from .models import Model, load_model

FORMAT = 3
# The options that a method takes, beside those that all of them take.
OPTIONS = {
    "auto": ("estimator", "draws", "steps", "batch_size"),
    "saa": (),
    "bam": (),
    "sgd": ("estimator", "draws", "steps", "batch_size", "learning_rate"),
}
# Exit codes by how the fit ended; 2 is misuse.
EXIT_CODES = {Status.CONVERGED: 0, Status.BUDGET: 3, Status.INTERRUPTED: 130}
FAILED = 1


def fit_command(
    name: str,
    *,
    method: str,
    family: str,
    seed: int,
    seconds: float | None = None,
    json_path: Path | None,
    **options: Any,
) -> int:
    """Fit, print, and return the exit code that goes with the ending.

    `options` are those of `OPTIONS`; None is an option that was not given.
    """
    lookup(METHODS, method, "method")
    lookup({ANY_FAMILY: None, **FAMILIES}, family, "family")
    given = {option: value for option, value in options.items() if value is not None}
    _check(method, given)
    keep_compiled()
    model = load_model(name)
    key_fit, key_test = jr.split(jr.key(seed))
    batch_size = None if method in ("saa", "bam") else given.get("batch_size", model.batch_size)
    made = _method(method, model, family, given)
    model.check_dim()
    result = fit(model.target, family, method=made, batch_size=batch_size, seconds=seconds, key=key_fit)
    report: dict[str, Any] = {
        "model": name,
        "title": model.title,
        "method": method,
        "family": family,
        "options": given,
        "steps": result.steps,
        "seed": seed,
        "status": str(result.status),
        "hint": result.hint,
        "elbo": result.elbo,
        "elbo_error": result.elbo_error,
        "clock": result.clock,
        "programs": result.programs,
    }
    if model.task is not None and model.task.test is not None and not result.status.failed:
        report["test_lppd"] = float(lppd(model.task.test, result.q, key=key_test))
        report["test_rows"] = model.task.test.rows
    _print(report, result)
    if json_path is not None:
        _write(json_path, report, result)
    return EXIT_CODES.get(result.status, FAILED)


def _check(method: str, given: dict[str, Any]) -> None:
    for option in given:
        if option not in OPTIONS[method]:
            flag = "--" + option.replace("_", "-")
            takers = " or ".join(f"--method {m}" for m, known in OPTIONS.items() if option in known)
            raise ValueError(f"--method {method} has no {flag}; leave it out, or use {takers}")
    if "draws" in given and "estimator" not in given:
        raise ValueError("--draws are those of an estimator: name it with --estimator")


def _method(method: str, model: Model, family: str, given: dict[str, Any]) -> AbstractMethod:
    steps = {"steps": given["steps"]} if "steps" in given else {}
    estimator = {"estimator": _estimator(given)} if "estimator" in given else {}
    if method in ("saa", "bam"):
        return METHODS[method]()
    if method == "auto":
        return Auto(**estimator, **steps)
    rate = given.get("learning_rate", model.learning_rate(family))
    return Sgd(optimizer=optax.adam(rate), **estimator, **steps)


def _estimator(given: dict[str, Any]) -> AbstractEstimator | str:
    name = given["estimator"]
    if name == "auto":
        return name
    return by_name(name, draws=given["draws"]) if "draws" in given else by_name(name)


def _print(report: dict[str, Any], result: FitResult) -> None:
    console = Console()
    table = Table(title=escape(report["title"]), show_header=False, title_justify="left")
    chosen = "" if report["family"] != ANY_FAMILY else f" ({type(result.q).__name__})"
    table.add_row("family", f"{report['family']}{chosen}, {result.q.dim} dimensions")
    table.add_row("ELBO", f"{report['elbo']:.2f} ± {report['elbo_error']:.2f} nats")
    if "test_lppd" in report:
        per_row = report["test_lppd"] / report["test_rows"]
        table.add_row(
            "test lppd",
            f"{report['test_lppd']:.2f} ({per_row:.3f} for each of {report['test_rows']} rows)",
        )
    clock = report["clock"]
    parts = ", ".join(
        f"{clock[name]:.2f} {name}" for name in ("compile", "optimise", "evaluate", "other")
    )
    table.add_row("method", f"{report['method']}, {report['steps']:,} steps")
    table.add_row("seconds", f"{clock['total']:.2f} ({parts})")
    table.add_row("status", escape(f"{report['status']}: {result.hint}"))
    console.print(table)
    for decision in result.decisions:
        console.print(str(decision), highlight=False, markup=False)


def _write(path: Path, report: dict[str, Any], result: FitResult) -> None:
    history = {name: column.tolist() for name, column in result.history.items()}
    document = {
        "format": FORMAT,
        **report,
        "evaluation": result.evaluation,
        "decisions": [str(decision) for decision in result.decisions],
        "history": history,
        "environment": environment(),
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
