"""`quietgrad fit` and `quietgrad race`."""

from pathlib import Path
from typing import Annotated

import cyclopts

from .names import Estimator, FamilyName, Method, Whole

Arguments = Annotated[tuple[str, ...], cyclopts.Parameter(name="--arg", negative=())]
Json = Annotated[Path | None, cyclopts.Parameter(name="--json")]
Flag = Annotated[bool, cyclopts.Parameter(negative=())]


def fit(
    model: str,
    *,
    data: Path | None = None,
    arguments: Arguments = (),
    method: Method = "auto",
    family: FamilyName = "mean-field",
    rank: Whole | None = None,
    estimator: Estimator | None = None,
    draws: Whole | None = None,
    steps: Whole | None = None,
    seconds: float | None = None,
    restarts: Whole = 1,
    learning_rate: float | None = None,
    batch_size: Whole | None = None,
    seed: Whole = 0,
    diagnose: bool | None = None,
    refine: Flag = False,
    out: Path | None = None,
    force: Flag = False,
    checkpoint: Path | None = None,
    start: Path | None = None,
    json: Json = None,
) -> int:
    """Fit a variational family to a model and print what was reached, and how.

    Exit codes: 0 converged, and with a verdict: trust; 1 failed; 2 misuse; 3 steps or seconds ran out; 4
    converged, use the corrected draws; 5 converged, do not trust; 130 interrupted.

    Parameters
    ----------
    model
        A name from `quietgrad list`, or a Python file and a name in it, my_model.py:model: a
        quietgrad.Target, a NumPyro model, a PyMC model, or a function that makes a target or a PyMC
        model.
    data
        Data for a NumPyro model or a function, as .csv, .npz or .json: columns or arrays become the
        arguments of the same names.
    arguments
        An argument that is called otherwise than its data, as name=column; name=column,column is a
        matrix and name=3 a number. May be given several times.
    method
        auto chooses step size, start, estimator and end; sgd takes Adam steps; saa fixes its draws; bam
        is batch and match.
    family
        The variational family; auto takes the simplest that no richer one beats.
    rank
        The rank of the low-rank family; 5 if left out.
    estimator
        The gradient estimator: for auto, one to keep; for sgd, quiet if left out.
    draws
        The estimator's draws per step; its own default if left out.
    steps
        Stochastic steps: for auto, the most; for sgd, 10,000 if left out.
    seconds
        Seconds that the fit may take at most, compilation included.
    restarts
        Fits from different starts, the best of which is the answer.
    learning_rate
        Adam's step size (sgd); the paper's for a task and family, else 0.01.
    batch_size
        Rows a step; all rows, or the task's own choice, if left out.
    seed
        Seed of the initial point, the draws and the minibatches.
    diagnose
        Find out whether to trust the fit, which takes about as long again; done with --out if left out.
    refine
        Let NUTS chains follow in the coordinates of the fit: draws and summary are then those of the
        chains, and the exit code is 0 if these are enough.
    out
        Write draws, summary, history, plot, verdict, result and the code that repeats it to this folder;
        where the verdict is to use them, corrected draws and their summary too.
    force
        Replace the results that are in the folder.
    checkpoint
        Save the fit in this folder as it goes; the same command goes on from there after an
        interruption, and refuses if the model, its data or a setting has changed.
    start
        Start from the q of a result that was saved, for example fit1/fit.quietgrad, in place of a
        family.
    json
        Also write the result and its history to this file.
    """
    from .commands.fit import fit_command

    return fit_command(
        model,
        data=data,
        arguments=arguments,
        method=method,
        family=family,
        rank=rank,
        estimator=estimator,
        draws=draws,
        steps=steps,
        seconds=seconds,
        restarts=restarts,
        learning_rate=learning_rate,
        batch_size=batch_size,
        seed=seed,
        diagnose=diagnose,
        refine=refine,
        out=out,
        force=force,
        checkpoint=checkpoint,
        start=start,
        json_path=json,
    )


def show(path: Path) -> int:
    """Print a saved result: how it was made, how it ended, its verdict, and a summary of its draws.

    Parameters
    ----------
    path
        A file of `result.save`, or the folder that `quietgrad fit --out` made.
    """
    from .commands.show import show_command

    return show_command(path)


def race(
    model: str | None = None,
    *,
    task: str | None = None,
    data: Path | None = None,
    arguments: Arguments = (),
    family: FamilyName = "mean-field",
    rank: Whole | None = None,
    seconds: float = 4.0,
    learning_rate: float = 0.01,
    batch_size: Whole | None = None,
    seed: Whole = 0,
    json: Json = None,
    plot: Path | None = None,
) -> int:
    """Find out which estimator reaches the answer first on your model and machine.

    Parameters
    ----------
    model
        A Python file and a name in it, my_model.py:model, as for `quietgrad fit`.
    task
        A built-in task instead, from `quietgrad list`.
    data
        Data for a NumPyro model or a function, as for `quietgrad fit`.
    arguments
        An argument that is called otherwise than its data, as for `quietgrad fit`.
    family
        The variational family; not auto.
    rank
        The rank of the low-rank family; 5 if left out.
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
        data=data,
        arguments=arguments,
        family=family,
        rank=rank,
        seconds=seconds,
        learning_rate=learning_rate,
        batch_size=batch_size,
        seed=seed,
        json_path=json,
        plot_path=plot,
    )
