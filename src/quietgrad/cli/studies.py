"""`quietgrad study` and `quietgrad report`."""

from pathlib import Path
from typing import Annotated, Literal

import cyclopts

from .names import Whole

study = cyclopts.App(
    name="study", help="Run a grid of tasks, families, estimators and methods, and make its page."
)


@study.default
def run_study(
    spec: str,
    *,
    out: Path | None = None,
    only: Annotated[tuple[str, ...], cyclopts.Parameter(negative=())] = (),
    reps: Whole | None = None,
    steps: Whole | None = None,
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
    directory: Path,
    *,
    only: Annotated[tuple[str, ...], cyclopts.Parameter(negative=())] = (),
    module: Path | None = None,
    rounds: Whole = 9,
    burst: float = 0.2,
) -> int:
    """Measure the seconds a step of every row of a study, on this machine while it does nothing else.

    For studies that were run untimed: the report then has a clock, steps times seconds a step. Stored as
    timing.json beside the results. Methods that end themselves are timed when they run.

    Parameters
    ----------
    directory
        Where `quietgrad study` put its results.
    only
        Measure only these rows, as key=value (see `quietgrad study --help`); what was measured of the
        others stays. A long pass can be made in pieces, best one for each task.
    module
        The Python file with the study's own models, if its spec names one.
    rounds
        Rounds, in each of which every configuration takes one burst of steps.
    burst
        Seconds of a burst.
    """
    from .commands.study import time_steps

    return time_steps(directory, only=only, module=module, rounds=rounds, burst=burst)


@study.command(name="list")
def study_list() -> int:
    """List the studies that come with quietgrad."""
    from .commands.study import show_specs

    return show_specs()


def report(
    directory: Path,
    *,
    out: Path | None = None,
    statistic: Literal["median", "mean"] = "median",
    chapter: Path | None = None,
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
    chapter
        The folder of a Python package with claims and figures of the study; the one that its spec names
        if left out.
    """
    from .commands.report import make_report

    return make_report(directory, out=out, statistic=statistic, chapter=chapter)
