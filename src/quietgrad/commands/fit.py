"""`quietgrad fit`: one model, one family, one table."""

import json
from pathlib import Path
from typing import Any

import jax.random as jr
import optax
from rich.console import Console
from rich.table import Table

from .._checks import lookup
from ..compiled import keep_compiled
from ..environment import environment
from ..estimators import AbstractEstimator
from ..estimators import estimator as by_name
from ..families import REGISTRY as FAMILIES
from ..fitting import METHODS, fit
from ..metrics import lppd
from ..results import FitResult, Status
from .models import Model, load_model

FORMAT = 2
STEPS, ESTIMATOR = 5000, "stl"
# The options that a method takes, beside those that all of them take.
OPTIONS = {
    "auto": ("estimator", "draws", "steps", "seconds", "batch_size"),
    "saa": (),
    "sgd": ("estimator", "draws", "steps", "seconds", "batch_size", "learning_rate"),
}


def fit_command(
    name: str,
    *,
    method: str,
    family: str,
    seed: int,
    json_path: Path | None,
    **options: Any,
) -> int:
    """Fit, print, and return the exit code: 0, or 1 if the run turned non-finite.

    `options` are those of `OPTIONS`; None is an option that was not given.
    """
    lookup(METHODS, method, "method")
    make_family = lookup(FAMILIES, family, "family")
    given = {option: value for option, value in options.items() if value is not None}
    _check(method, given)
    keep_compiled()
    model = load_model(name)
    key_start, key_fit, key_test = jr.split(jr.key(seed), 3)
    q = make_family.init(model.dim, key=key_start)
    result = fit(model.target, q, method=method, key=key_fit, **_settings(method, model, family, given))
    report: dict[str, Any] = {
        "model": name,
        "title": model.title,
        "method": method,
        "family": family,
        "options": given,
        "steps": result.steps,
        "seed": seed,
        "status": str(result.status),
        "elbo": result.elbo,
        "elbo_error": result.elbo_error,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
    }
    if model.task is not None and model.task.test is not None:
        report["test_lppd"] = float(lppd(model.task.test, result.q, key=key_test))
        report["test_rows"] = model.task.test.rows
    _print(report, result)
    if json_path is not None:
        _write(json_path, report, result)
    return 1 if result.status is Status.NON_FINITE else 0


def _check(method: str, given: dict[str, Any]) -> None:
    for option in given:
        if option not in OPTIONS[method]:
            flag = "--" + option.replace("_", "-")
            takers = " or ".join(f"--method {m}" for m, known in OPTIONS.items() if option in known)
            raise ValueError(f"--method {method} has no {flag}; leave it out, or use {takers}")
    if "draws" in given and "estimator" not in given:
        raise ValueError("--draws are those of an estimator: name it with --estimator")


def _settings(method: str, model: Model, family: str, given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of `fit`."""
    if method == "saa":
        return {}
    settings = {name: given[name] for name in ("steps", "seconds") if name in given}
    settings["batch_size"] = given.get("batch_size", model.batch_size)
    if method == "auto":
        return settings | ({"estimator": _estimator(given)} if "estimator" in given else {})
    rate = given.get("learning_rate", model.learning_rate(family))
    ours = {"estimator": _estimator(given), "optimizer": optax.adam(rate)}
    return {"steps": STEPS, **settings, **ours}


def _estimator(given: dict[str, Any]) -> AbstractEstimator | str:
    name = given.get("estimator", ESTIMATOR)
    if name == "auto":
        return name
    return by_name(name, draws=given["draws"]) if "draws" in given else by_name(name)


def _print(report: dict[str, Any], result: FitResult) -> None:
    console = Console()
    table = Table(title=report["title"], show_header=False, title_justify="left")
    table.add_row("family", f"{report['family']}, {result.q.dim} dimensions")
    table.add_row("ELBO", f"{report['elbo']:.2f} ± {report['elbo_error']:.2f} nats")
    if "test_lppd" in report:
        per_row = report["test_lppd"] / report["test_rows"]
        table.add_row(
            "test lppd",
            f"{report['test_lppd']:.2f} ({per_row:.3f} for each of {report['test_rows']} rows)",
        )
    table.add_row("method", report["method"])
    table.add_row("optimisation", f"{report['seconds']:.2f} s for {report['steps']:,} steps")
    table.add_row("compilation", f"{report['compile_seconds']:.2f} s")
    table.add_row("status", f"{report['status']}: {result.hint}")
    console.print(table)
    for decision in result.decisions:
        console.print(str(decision), highlight=False)


def _write(path: Path, report: dict[str, Any], result: FitResult) -> None:
    history = {name: column.tolist() for name, column in result.history.items()}
    document = {
        "format": FORMAT,
        **report,
        "decisions": [str(decision) for decision in result.decisions],
        "history": history,
        "environment": environment(),
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
