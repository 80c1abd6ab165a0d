"""The command line: arguments and exit codes, nothing else. jax is imported when a command runs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import cyclopts

from ._version import __version__

app = cyclopts.App(
    name="quietgrad",
    help="Variational inference with low-noise gradients.",
    version=__version__,
)


@app.command
def fit(
    model: str,
    *,
    method: str = "auto",
    family: str = "mean-field",
    estimator: str | None = None,
    draws: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    json: Annotated[Path | None, cyclopts.Parameter(name="--json")] = None,
) -> int:
    """Fit a variational family to a model and print what was reached, and how.

    Parameters
    ----------
    model
        A name from `quietgrad list`, or a Python file and the name of a target in it:
        my_model.py:target.
    method
        auto chooses step size, start, estimator and end; sgd takes Adam steps; saa fixes its draws.
    family
        The variational family.
    estimator
        The gradient estimator: for auto, one to keep; for sgd, quiet if left out.
    draws
        The estimator's draws per step; its own default if left out.
    steps
        Stochastic steps: for auto, the most; for sgd, 10,000 if left out.
    seconds
        Seconds that the fit may take at most, compilation included.
    learning_rate
        Adam's step size (sgd); the paper's for a task and family, else 0.01.
    batch_size
        Rows a step; all rows, or the task's own choice, if left out.
    seed
        Seed of the initial point, the draws and the minibatches.
    json
        Also write the result and its history to this file.
    """
    from .commands.fit import fit_command

    return fit_command(
        model,
        method=method,
        family=family,
        estimator=estimator,
        draws=draws,
        steps=steps,
        seconds=seconds,
        learning_rate=learning_rate,
        batch_size=batch_size,
        seed=seed,
        json_path=json,
    )


@app.command
def race(
    model: str | None = None,
    *,
    task: str | None = None,
    family: str = "mean-field",
    seconds: float = 4.0,
    learning_rate: float = 0.01,
    batch_size: int | None = None,
    seed: int = 0,
    json: Annotated[Path | None, cyclopts.Parameter(name="--json")] = None,
    plot: Path | None = None,
) -> int:
    """Find out which estimator reaches the answer first on your model and machine.

    Parameters
    ----------
    model
        A Python file and the name of a target in it: my_model.py:target.
    task
        A built-in task instead, from `quietgrad list`.
    family
        The variational family.
    seconds
        Seconds of optimisation for each candidate.
    learning_rate
        Adam's step size, the same for all.
    batch_size
        Rows a step; all rows, or the task's own choice, if left out.
    seed
        Seed of the common start and of the draws.
    json
        Also write the result to this file.
    plot
        Also draw ELBO against seconds to this file (PNG or PDF).
    """
    from .commands.race import race_command

    return race_command(
        model,
        task=task,
        family=family,
        seconds=seconds,
        learning_rate=learning_rate,
        batch_size=batch_size,
        seed=seed,
        json_path=json,
        plot_path=plot,
    )


study = cyclopts.App(
    name="study", help="Run a grid of tasks, families, estimators and methods, and make its page."
)
app.command(study)


@study.default
def run_study(
    spec: str,
    *,
    out: Path | None = None,
    only: Annotated[tuple[str, ...], cyclopts.Parameter(negative=())] = (),
    reps: int | None = None,
    steps: int | None = None,
    engine: str = "processes",
    fresh: Annotated[bool, cyclopts.Parameter(negative=())] = False,
    report: bool = True,
) -> int:
    """Run what is missing of a study; exit with 1 if a cell failed or timed out.

    Parameters
    ----------
    spec
        A name from `quietgrad study list`, or the path of a .toml file.
    out
        Results directory; quietgrad-results/ and the study's name if left out.
    only
        Run only these cells, as key=value with the keys task, family, method, estimator, draws, rep,
        group. May be given several times.
    reps
        Repetitions, instead of the spec's.
    steps
        Optimisation steps, instead of the spec's.
    engine
        processes, inprocess, dask (a local cluster) or dask://tcp://host:port.
    fresh
        Forget what is stored of these cells and run them again.
    report
        Make the figures and the page at the end.
    """
    from .commands.study import run

    changes = {"reps": reps, "steps": steps}
    return run(spec, changes, out=out, only=only, engine=engine, fresh=fresh, report=report)


@study.command(name="status")
def study_status(directory: Path) -> int:
    """Say how many cells of a study are done; exit with 1 if it is not complete.

    Parameters
    ----------
    directory
        Where `quietgrad study` put its results.
    """
    from .commands.study import status

    return status(directory)


@study.command(name="time")
def study_time(
    directory: Path, *, module: Path | None = None, rounds: int = 9, burst: float = 0.2
) -> int:
    """Measure the seconds a step of every row of a study, on this machine while it does nothing else.

    For studies that were run untimed: the report then has a clock, steps times seconds a step. Stored as
    timing.json beside the results. Methods that end themselves are timed when they run.

    Parameters
    ----------
    directory
        Where `quietgrad study` put its results.
    module
        The Python file with the study's own models, if its spec names one.
    rounds
        Rounds, in each of which every configuration takes one burst of steps.
    burst
        Seconds of a burst.
    """
    from .commands.study import time_steps

    return time_steps(directory, module=module, rounds=rounds, burst=burst)


@study.command(name="list")
def study_list() -> int:
    """List the studies that come with quietgrad."""
    from .commands.study import show_specs

    return show_specs()


@app.command(name="list")
def list_names() -> int:
    """List tasks, families, methods and estimators, with a line on each."""
    from .commands.catalogue import print_catalogue

    return print_catalogue()


@app.command
def report(
    directory: Path,
    *,
    out: Path | None = None,
    statistic: Literal["median", "mean"] = "median",
) -> int:
    """Draw the figures and make the page of a study from its stored records.

    Parameters
    ----------
    directory
        Where `quietgrad study` put its results.
    out
        Where figures and page go; beside the results if left out.
    statistic
        What the page shows over repetitions at first; figures are drawn with both.
    """
    from .commands.report import make_report

    return make_report(directory, out=out, statistic=statistic)


@app.command
def info() -> int:
    """Print versions, machine and data sources: what to put into a bug report."""
    from .commands.catalogue import print_info

    return print_info()


def main() -> None:
    """Run the command and exit.

    0 done; 1 ran but did not succeed; 2 misuse; 3 a fit that reached its limit before it converged;
    130 interrupted.
    """
    try:
        sys.exit(app(result_action="return_value"))
    except (ValueError, TypeError, FileNotFoundError, ImportError) as error:
        print(f"quietgrad: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("quietgrad: interrupted", file=sys.stderr)
        sys.exit(130)
