"""`fit`: the one call. It checks what was given, opens a recorder, and hands both to a method."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from .._numerics.lapack import one_blas_thread
from .._util.checks import check_key, instance, lookup, part, whole
from .._util.extras import adapter
from .._util.random import key_words
from ..families import ANY_FAMILY, AbstractFamily, AbstractWithHyperparameters, MeanField, beside, named
from ..families.stored import NOT_FITTED, StoredFamily
from ..methods import OTHER_NAMES, AbstractMethod, Sgd
from ..methods import REGISTRY as METHODS
from ..results import FitResult
from ..scale.compilation_cache import keep_compiled_once
from ..scale.sharding import check_mesh, check_processes, gathered, spread
from ..session import INTERRUPTED, Callback, Ended, Interrupts, Problem, Recorder, checkpoint_of
from ..session.checkpoint import Checkpoint
from ..session.clock import Clock
from ..session.endings import NEGLIGIBLE
from ..session.streaming import Feed
from ..status import Status
from ..targets import Target
from ..targets.hyperparameters import checked, fitted_beside, fixed_at
from .by_site import by_site
from .restarts import fit_restarts, numbered, other_starts

RESUMABLE = "stopped by the user; the same call goes on from here"


def fit(
    target: Target,
    family: AbstractFamily | str | Mapping[Any, Any] = "mean-field",
    *,
    method: AbstractMethod | str = "auto",
    batch_size: int | None = None,
    hyperparameters: PyTree = None,
    seconds: float | int | None = None,
    restarts: int = 1,
    mesh: Mesh | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    refine: bool | float | int = False,
    key: Key[Array, ""],
) -> FitResult:
    """Fit a variational family to a target by maximising the ELBO.

    Ctrl-C ends the fit and returns the best answer so far, with status "interrupted".

    Args:
        target: what is inferred, made by `Target`, `Target.from_logdensity`, `Target.from_numpyro` or
            `Target.from_pymc`.
        family: a registered name ("mean-field", "low-rank", "full-rank", ...); "auto" for the simplest
            family that no richer one beats; or an instance. An instance is the start: the fit goes on
            from it, and never returns anything worse. A dict gives every named site a family of its own,
            or "map" for a point at the maximum:
            `{"beta": "full-rank", ("a", "b"): "low-rank", "w": "map", "*": "mean-field"}`.
        method: a registered name or an instance with its settings. `Auto()` needs none,
            `Sgd(estimator=..., optimizer=..., steps=...)` takes stochastic gradient steps, `Saa()` fixes
            its draws, `Bam()` is batch and match.
        batch_size: rows used in a step; None uses all of them.
        hyperparameters: a pytree whose floating-point arrays are fitted beside q, to maximise the ELBO.
            The target's functions take it as a further argument, `log_prior(z, h)` and
            `log_likelihood(z, data, h)`. `result.hyperparameters` is where it ended.
        seconds: limit of the whole call, compilation included; None is no limit.
        restarts: number of starts. The best fit is returned, and `result.restarts` says how far the
            others agree with it.
        mesh: devices that share the work: draws over an axis named "draws", starts over one named
            "restarts", rows of the data over any other.
        progress: whether to show a line of progress; None shows it if standard error is a terminal.
        callback: called as `callback(moment)` at every evaluation of the ELBO. It may return a dict of
            further columns of the history.
        checkpoint: a directory to which the fit saves itself as it goes. The same call goes on there
            after an interruption of any kind, and ends where it would have ended without one, bit for
            bit, unless the method decides by the clock (`by_clock=False` rules that out). Once the fit
            is done, the same call returns its result.
        refine: True, or a number of seconds, runs NUTS chains in the coordinates of the fit afterwards
            (`result.refine`). `result.refined` has their draws and how good they are, and
            `result.sample`, `result.summary` and `result.to_arviz` are of these draws.
        key: a random key, `jax.random.key(0)`. The same key gives the same fit.

    Returns:
        The fitted family with its ELBO, status, history and clock; `result.diagnose()` says whether to
        trust it.

    Raises:
        ValueError: if the arguments do not go together; the message says what to change.
    """
    by_sites = isinstance(family, Mapping)
    if isinstance(family, Mapping):
        instance(target, Target, "target")
        check_key(key)
        target, family = by_site(target, family, key=key)
    if hyperparameters is None and isinstance(target, Target) and target.parameters is not None:
        hyperparameters = target.parameters.start
    _check_refine(refine)
    clock, interrupts = Clock(), Interrupts()
    with interrupts.catching(), clock.running():
        keep_compiled_once()
        method = part(method, METHODS, AbstractMethod, "method", OTHER_NAMES)
        if seconds is not None and not seconds > 0:
            raise ValueError(f"seconds must be positive; got {seconds!r}")
        seconds = None if seconds is None else float(seconds)
        restarts = whole(restarts, "restarts", least=1)
        if mesh is not None:
            check_mesh(mesh, target, restarts=restarts)
            plain = isinstance(method, Sgd) and not method.by_clock
            check_processes(plain_steps=plain, seconds=seconds, restarts=restarts)
            if checkpoint is not None:
                raise ValueError("a checkpoint is for a fit on one device; leave it or the mesh out")
            # Pools of rows on disk are targets like the one that was given.
            target = target.with_mesh(mesh)
        problem = problem_of(target, family, batch_size, hyperparameters, key=key)
        if by_sites:
            # A start that was made from names, like any other.
            problem = dataclasses.replace(problem, start_given=False)
        if mesh is not None:
            placed = spread(problem.target) if problem.feed is None else problem.target
            given = problem.whole.with_mesh(None)
            problem = dataclasses.replace(problem, target=placed, given=given)
        if problem.any_family and not method.chooses_family:
            choosing = [name for name, kind in METHODS.items() if kind().chooses_family]
            raise ValueError(
                f"family='auto' needs a method that chooses one ({', '.join(choosing)}); got "
                f"{type(method).__name__}: name a family instead"
            )
        check(problem, method)
        if checkpoint is not None and restarts > 1:
            raise ValueError(
                f"a checkpoint holds one fit, not the {restarts} of restarts={restarts}; leave one out"
            )
        stored = checkpoint_of(checkpoint, problem, method, seconds, key=key)

        def record(problem: Problem, number: int | None = 0) -> Recorder:
            return Recorder(
                problem,
                seconds=seconds,
                callback=callback,
                progress=progress,
                key=key if number == 0 else numbered(key, number),
                clock=clock,
                checkpoint=stored,
                interrupts=interrupts,
            )

        if restarts == 1:
            if stored.result is not None:
                result = FitResult(**stored.result, target=problem.whole, method=method)
            else:
                result = run(problem, method, record(problem))
            if hyperparameters is not None:
                result = _given_hyperparameters(target, result)
        elif hyperparameters is not None:
            raise ValueError(
                f"restarts={restarts} would start q elsewhere, but not the hyperparameters; "
                "leave restarts out, or fit with other hyperparameters and compare result.elbo"
            )
        else:
            result = fit_restarts(other_starts(problem, restarts, key), method, record, run)
    return _refined(dataclasses.replace(result, seed=tuple(key_words(key))), refine, progress=progress)


def _check_refine(refine: float | int) -> None:
    """Before the fit: whether chains can follow it."""
    if refine is False:
        return
    if refine is not True and not refine > 0:
        raise ValueError(f"refine must be True, False or a positive number of seconds; got {refine!r}")
    adapter("nuts").engine()


def _refined(result: FitResult, refine: float | int, *, progress: bool | None) -> FitResult:
    """The result with draws of chains that follow it, if asked for and there is something to follow."""
    if refine is False or result.status in (Status.INTERRUPTED, Status.NON_FINITE):
        return result
    seconds = () if refine is True else (refine,)
    return dataclasses.replace(result, refined=result.refine(*seconds, progress=progress))


def problem_of(
    target: Target,
    family: AbstractFamily | str,
    batch_size: int | None,
    hyperparameters: PyTree = None,
    *,
    key: Key[Array, ""],
) -> Problem:
    """What is to be fitted, checked; a family given by name starts as its `init` says."""
    instance(target, Target, "target")
    check_key(key)
    any_family = isinstance(family, str) and family == ANY_FAMILY
    start_given = not isinstance(family, str)
    if any_family and hyperparameters is not None:
        raise ValueError(
            "family='auto' goes up by Newton steps, which do not fit hyperparameters; name a family, "
            "e.g. 'mean-field'"
        )
    if isinstance(family, str):
        made = MeanField if any_family else named(family, ANY_FAMILY)
        if target.dim is None:
            raise ValueError(
                f"the target does not say its dim, so a family cannot be made from the name {family!r}; "
                "make the target with dim=... or example=..., or hand in a family"
            )
        if any_family:
            # The start of a ladder, without a program.
            family = MeanField.random(target.dim, np.random.default_rng(key_words(key)))
        else:
            family = made.for_target(target, key=key)
    instance(family, AbstractFamily, "family")
    if isinstance(family, StoredFamily):
        target = target.of_dim(family.dim)
        made_again = family.around(target)
        if made_again is None:
            raise ValueError(NOT_FITTED)
        family = made_again
    if hyperparameters is not None:
        hyperparameters = checked(hyperparameters, family.dtype)
        target.check_dim(family.dim)
        target = fitted_beside(target, hyperparameters, family.dim, family.dtype)
        family = beside(family, hyperparameters)
    target = target.of_dim(family.dim)
    if batch_size is not None:
        batch_size = target.check_batch_size(batch_size)
    if not target.on_disk:
        return Problem(target, family, batch_size, any_family, start_given=start_given)
    if batch_size is None:
        raise ValueError(
            f"the {target.rows:,} rows of this target stay on disk, so steps cannot use all of them; "
            "give batch_size=..., or data in memory"
        )
    feed = Feed(target, batch_size, key_words(key))
    return Problem(feed.target, family, batch_size, any_family, feed=feed, start_given=start_given)


def check(problem: Problem, method: AbstractMethod) -> None:
    """Raise a `ValueError` with the reason if the method cannot fit the problem."""
    reason = method.refuses(problem.target, problem.q, problem.batch_size)
    if reason is not None:
        raise ValueError(reason)


def run(problem: Problem, method: AbstractMethod, recorder: Recorder) -> FitResult:
    """Run a method on a problem that was checked, to its true ending."""
    check(problem, method)
    with one_blas_thread(), recorder.watching():
        try:
            claimed = method.run(problem, recorder)
        except Ended as ended:
            claimed = ended.status, ended.hint
        except KeyboardInterrupt:
            claimed = Status.INTERRUPTED, INTERRUPTED
        recorder.catch_up()
        claimed = recorder.held_to_start(*claimed)
        answer = recorder.answer
        terms = recorder.final_terms(answer.q)
        status, hint = recorder.verified_status(*claimed, terms)
    if status is not Status.NON_FINITE:
        terms = terms.resolved(NEGLIGIBLE)
    if status is Status.INTERRUPTED and isinstance(recorder.checkpoint, Checkpoint):
        hint = RESUMABLE
    alone = problem.given is None
    found = {
        "q": answer.q if alone else gathered(answer.q),
        "elbo": terms.elbo,
        "elbo_error": terms.error,
        "status": status,
        "hint": hint,
        "steps": recorder.steps,
        "history": recorder.history.arrays(),
        "clock": recorder.clock.read(),
        "evaluation": recorder.evaluation_words(),
        "programs": recorder.clock.programs,
        "estimator": recorder.estimator,
        "estimator_state": answer.estimator_state if alone else gathered(answer.estimator_state),
        "decisions": tuple(recorder.decisions),
        "words": recorder.seed("diagnose"),
    }
    recorder.close(None if claimed[0] is Status.INTERRUPTED else found)
    return FitResult(**found, target=problem.own, method=method)


def _given_hyperparameters(target: Target, result: FitResult) -> FitResult:
    """The result as one of the target at the fitted hyperparameters, which everything else asks."""
    q = result.q
    assert isinstance(q, AbstractWithHyperparameters)
    own = target.parameters
    if own is not None:
        found = own.at(target, q.hyperparameters)
        return dataclasses.replace(
            result, q=q.of_z, target=found, hyperparameters=own.values(q.hyperparameters)
        )
    return dataclasses.replace(
        result,
        q=q.of_z,
        target=fixed_at(target, result.target, q.hyperparameters),
        hyperparameters=q.hyperparameters,
    )


def method(given: AbstractMethod | str, **settings: Any) -> AbstractMethod:
    """The method of this name with these settings; an instance is passed through."""
    if isinstance(given, str) and settings:
        return lookup(METHODS, given, "method", OTHER_NAMES)(**settings)
    return part(given, METHODS, AbstractMethod, "method", OTHER_NAMES)
