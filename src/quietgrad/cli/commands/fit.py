"""`quietgrad fit`: one model, one family, a table, and if asked a verdict and a folder of results."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..._util.environment import environment
from ..._util.files import check_place
from ...diagnostics.diagnosis import Diagnosis, Verdict
from ...evaluation.metrics import lppd
from ...families import ANY_FAMILY
from ...fitting import fit
from ...results import FitResult
from ...scale.compilation_cache import keep_compiled
from ...status import Status
from . import folder, settings
from .draws import write_draws
from .models import Model, load_model
from .repeat import START, START_CODE, Call, command_line, write_repeat

FORMAT = 4
# Exit codes by how the fit ended, and for one that converged by the verdict; 2 is misuse.
EXIT_CODES = {Status.CONVERGED: 0, Status.BUDGET: 3, Status.INTERRUPTED: 130}
VERDICT_CODES = {Verdict.TRUST: 0, Verdict.CORRECTED: 4, Verdict.DO_NOT_TRUST: 5}
FAILED = 1
INTERRUPTED = "the fit was interrupted"
NOT_ASKED = "it was not asked for"


def fit_command(
    name: str,
    *,
    method: str,
    family: str,
    seed: int,
    seconds: float | None = None,
    restarts: int = 1,
    data: Path | None = None,
    arguments: Sequence[str] = (),
    json_path: Path | None = None,
    out: Path | None = None,
    force: bool = False,
    checkpoint: Path | None = None,
    start: Path | None = None,
    diagnose: bool | None = None,
    refine: bool = False,
    **options: Any,
) -> int:
    """Fit, print, write, and return the exit code that goes with the ending and the verdict.

    `start` is the file of a saved result whose q is the start, in place of a family's name.
    `options` are the rank and those of `settings.OPTIONS`; None is an option that was not given.
    """
    given = {option: value for option, value in options.items() if value is not None}
    settings.check(method, family, given)
    begin = None if start is None else settings.start_of(start, family, given.get("rank"))
    if out is not None:
        folder.check_out(out, force=force, resumes=checkpoint is not None)
    check_place(json_path)
    keep_compiled()
    model = load_model(name, data, arguments)
    model.check_dim()
    key, rank = jr.key(seed), given.get("rank")
    batch_size = settings.batch_size_of(method, model, given)
    result = fit(
        model.target,
        settings.family_of(family, rank, model, key) if begin is None else begin,
        method=settings.method_of(method, model, family, given),
        batch_size=batch_size,
        seconds=seconds,
        restarts=restarts,
        checkpoint=checkpoint,
        refine=refine,
        key=key,
    )
    report: dict[str, Any] = {
        "model": name,
        "title": model.title,
        "method": method,
        "family": family if begin is None else type(begin).__name__,
        "start": start,
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
        report["test_lppd"] = float(lppd(model.task.test, result.q, key=jr.fold_in(key, 1)))
        report["test_rows"] = model.task.test.rows
    _print(report, result, model)
    diagnosis, reason = None, NOT_ASKED
    if out is not None if diagnose is None else diagnose:
        diagnosis, reason = _diagnosed(result)
    verdict = None if diagnosis is None else diagnosis.verdict
    code = exit_code(result.status, verdict)
    if result.refined is not None:
        Console().print(f"refined: {result.refined}", markup=False, highlight=False)
        report["refined"] = dataclasses.asdict(result.refined.diagnostics)
        code = 0 if result.refined.converged else FAILED
    report |= {"verdict": verdict, "exit_code": code}
    if json_path is not None:
        folder.write_json(json_path, _document(report, result))
    if out is not None:
        call = Call(
            settings.family_code(family, rank) if start is None else START_CODE,
            settings.method_code(method, model, family, given),
            batch_size,
            seconds,
            restarts,
            seed,
            settings.precision(),
            refine,
        )
        with folder.staged(out) as stage:
            write_repeat(stage, out, model, name, call, command_line())
            if start is not None:
                shutil.copyfile(start, stage / START)
            _write(stage, result, diagnosis, reason, _document(report, result))
        Console().print(f"results: {out}", markup=False, highlight=False)
    return code


def exit_code(status: Status, verdict: Verdict | None) -> int:
    """That of the ending; of the verdict, if there is one and the fit converged."""
    if status is Status.CONVERGED and verdict is not None:
        return VERDICT_CODES[verdict]
    return EXIT_CODES.get(status, FAILED)


def _diagnosed(result: FitResult) -> tuple[Diagnosis | None, str]:
    """The diagnosis, printed; none after Ctrl-C, when people want to be done."""
    if result.status is Status.INTERRUPTED:
        return None, INTERRUPTED
    with Console(stderr=True).status("diagnosing"):
        diagnosis = result.diagnose()
    Console().print(f"verdict: {diagnosis}", markup=False, highlight=False)
    return diagnosis, ""


def _write(
    stage: Path, result: FitResult, diagnosis: Diagnosis | None, reason: str, document: dict[str, Any]
) -> None:
    """Everything but the code that repeats it; what takes longest to make again comes first."""
    result.save(stage / folder.SAVED)
    folder.write_history(stage, result)
    folder.write_verdict(stage, diagnosis, reason, refined=result.refined is not None)
    verdict = None if diagnosis is None else diagnosis.verdict
    write_draws(stage, result, verdict)
    finite = result.status is not Status.NON_FINITE
    with Console(stderr=True).status("drawing"):
        figure = result.plot(
            corrected=verdict is Verdict.CORRECTED, noise=finite and diagnosis is not None
        )
        figure.savefig(stage / "fit.png")
    folder.write_json(stage / folder.RESULT, document)


def _document(report: dict[str, Any], result: FitResult) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **report,
        "evaluation": result.evaluation,
        "decisions": [str(decision) for decision in result.decisions],
        "history": result.history,
        "environment": environment(),
        "double_precision": jax.config.read("jax_enable_x64"),
    }


def _print(report: dict[str, Any], result: FitResult, model: Model) -> None:
    console = Console()
    table = Table(title=escape(report["title"]), show_header=False, title_justify="left")
    chosen = "" if report["family"] != ANY_FAMILY else f" ({type(result.q).__name__})"
    if model.bound.values:
        unused = f"; not used: {', '.join(model.bound.unused)}" if model.bound.unused else ""
        table.add_row("data", escape(f"{', '.join(model.bound.values)}{unused}"))
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
