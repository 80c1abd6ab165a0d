"""`fit_energy`: maximise the likelihood of e^{-E(x)} / Z for any energy written in JAX."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from .._numerics.lapack import one_blas_thread
from .._util.checks import check_key, described, part, whole
from .._util.compiling import program
from .._util.fingerprint import Identity
from .._util.progress import progress_line, time_left
from ..session.clock import OPTIMISE, Clock, Ended, Interrupts, Limits
from ..session.history import History
from ..solvers.guarded_adam import guarded_adam
from ..solvers.steps import Optimizer
from ..status import Status
from .chunks import Carry, ChunkSummary, Job, agreement, run_chunk
from .methods import REGISTRY as METHODS
from .methods import AbstractEnergyMethod
from .problem import EnergyProblem, problem_of
from .result import EnergyResult

# Seconds that a chunk may take: Ctrl-C and limits are looked at in between.
CHUNK_SECONDS = 0.5
# How much longer than the last one a chunk may be. The pace of one step says little of that of many:
# limits and Ctrl-C must not wait for a chunk that is longer than it seemed.
GROWTH = 8
# Rows of the history, at least, of a run that takes all its steps.
HISTORY_ROWS = 50
# How far chains may be from the rows' mean, in the rows' deviations, before they count as gone.
GONE = 100.0
# A cosine between late mean gradients above which there is a way to go. Between two vectors of noise it
# is below this but for few parameters, whose chance to agree is larger.
SAME_WAY = 0.5
RATE = 0.01

Callback = Callable[["EnergyMoment"], Mapping[str, float] | None]


class EnergyMoment(NamedTuple):
    """What a callback gets: the step, the energy as it was given with its present parameters, chains."""

    step: int
    energy: PyTree
    chains: Float[Array, "chains dim"] | None


class _Sight(NamedTuple):
    """What is shown of a chunk."""

    stage: str
    step: int
    row: dict[str, float | int]
    elapsed: float
    left: float | None

    def words(self, since: float = 0.0) -> str:
        row = self.row
        parts = [self.stage, f"step {self.step:,}"]
        if math.isfinite(row["gap"]):
            parts.append(f"gap {row['gap']:.3g}")
        if row["noise"] > 0:
            parts.append(f"gradient signal/noise {row['gradient'] / row['noise']:.2g}")
        if math.isfinite(row["accepted"]):
            parts.append(f"accepted {row['accepted']:.2f}")
        parts.append(f"{self.elapsed + since:.1f} s")
        if self.left is not None:
            parts.append(f"{max(0.0, self.left - since):.0f} s left")
        return " · ".join(parts)


def fit_energy(
    energy: Any,
    data: Any,
    *,
    method: AbstractEnergyMethod | str = "stein",
    steps: int = 2000,
    batch_size: int | None = None,
    rate: float = RATE,
    optimizer: optax.GradientTransformation | None = None,
    seconds: float | int | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    key: Key[Array, ""],
) -> EnergyResult:
    """Fit an energy-based model p(x) = e^{-E(x)} / Z to rows of data.

    Ctrl-C ends the fit and returns what there is, with status "interrupted". What a step costs, and
    whether it is biased, the method says.

    Args:
        energy: an equinox module that is called with a point in the shape of a row, or
            `(params, function)` with `function(params, point)`.
        data: rows along the leading axis.
        method: a registered name or an instance with its settings: "stein" (persistent chains with Stein
            weights), "pcd" and "cd" (contrastive divergence), "jarzynski", "score-matching".
        steps: how many.
        batch_size: rows, drawn at random, that are used in a step; None uses all of them.
        rate: Adam's, which falls to a hundredth of it along half a cosine.
        optimizer: any optax optimiser in place of Adam; it then has its own rate.
        seconds: limit of the whole call, compilation included; the rate then falls with the time.
        callback: called as `callback(moment)` after every row of the history. It may return a dict of
            further columns.
        progress: whether to show a line of progress; None shows it if standard error is a terminal.
        key: a random key, `jax.random.key(0)`.

    Returns:
        The fitted energy with its draws, status, history and clock.
    """
    clock, interrupts = Clock(), Interrupts()
    with interrupts.catching(), clock.running():
        check_key(key)
        registry: Any = METHODS
        method = part(method, registry, AbstractEnergyMethod, "method")  # pyright: ignore[reportAbstractUsage]
        steps = whole(steps, "steps", least=1)
        if seconds is not None and not seconds > 0:
            raise ValueError(f"seconds must be positive; got {seconds!r}")
        if not (isinstance(rate, float | int) and rate > 0):
            raise ValueError(f"rate must be a positive number; got {rate!r}")
        if optimizer is not None and not isinstance(optimizer, optax.GradientTransformation):
            made = described(optimizer)
            raise TypeError(f"optimizer must be made by optax, e.g. optax.adam(1e-2); got {made}")
        problem, params = problem_of(energy, data)
        rows = problem.data.shape[0]
        if batch_size is not None and not 1 <= whole(batch_size, "batch_size", least=1) <= rows:
            raise ValueError(f"batch_size must be at most the {rows} rows of data; got {batch_size}")
        reason = method.refuses(problem)
        if reason is not None:
            raise ValueError(reason)
        limits = Limits(clock, None if seconds is None else float(seconds), None, interrupts)
        # LAPACK's threads would wait for each other between the small matrices of a step.
        with one_blas_thread(), progress_line(show=progress) as show:
            run = _Run(problem, method, optimizer, batch_size, float(rate), steps, clock, limits, key)
            return run(params, callback, show, None if seconds is None else float(seconds))


class _Run:
    """The chunks of one fit."""

    def __init__(
        self,
        problem: EnergyProblem,
        method: AbstractEnergyMethod,
        optimizer: optax.GradientTransformation | None,
        batch_size: int | None,
        rate: float,
        steps: int,
        clock: Clock,
        limits: Limits,
        key: Key[Array, ""],
    ):
        self._key_start, key_steps = jr.split(key)
        # The rate is an argument of the steps: one program serves all rates.
        made = Optimizer(guarded_adam(rate), "guarded adam")
        if optimizer is not None:
            made = Optimizer(optimizer, Identity(optimizer))
        dtype = problem.data.dtype
        self._job = Job(problem, method, made, batch_size, jnp.asarray(rate, dtype), key_steps)
        self._steps, self._clock, self._limits = steps, clock, limits
        self._history, self._chunk = History(), 1

    def __call__(
        self, params: PyTree, callback: Callback | None, show: Any, seconds: float | None
    ) -> EnergyResult:
        carry, step, span = self._begin(params), 0, float(self._steps)
        try:
            pace = 0.0
            while step < self._steps and step < span:
                self._limits.check()
                last = self._last(step, pace)
                before = self._clock.spent(OPTIMISE)
                with self._clock.phase(OPTIMISE):
                    carried, summary = run_chunk(
                        self._job, carry, jnp.asarray(step), jnp.asarray(last), jnp.asarray(span)
                    )
                    summary = jax.device_get(summary)
                pace = (self._clock.spent(OPTIMISE) - before) / (last - step)
                self._stop_if_lost(summary, last - step, last)
                carry, step = carried, last
                row = self._row(step, summary)
                span = self._span(step, pace, seconds)
                chains = self._job.method.draws(carry.state)
                if callback is not None:
                    moment = EnergyMoment(step, self._job.problem.model.whole(carry.params), chains)
                    row |= dict(callback(moment) or {})
                self._history.add(row)
                left = time_left(self._limits.left(), pace, int(span) - step)
                shown = _Sight("fitting an energy", step, row, self._clock.total, left)
                show(lambda shown=shown: shown)
            status, hint = self._ending(carry, step)
        except Ended as ended:
            status, hint = ended.status, ended.hint
        except KeyboardInterrupt:
            status, hint = Status.INTERRUPTED, "stopped by the user"
        if status is Status.INTERRUPTED:
            hint = "stopped by the user; fit_energy(result.energy, ...) goes on from here"
        problem = self._job.problem
        return EnergyResult(
            energy=problem.model.whole(carry.params),
            status=status,
            hint=hint,
            steps=step,
            history=self._history.arrays(),
            clock=self._clock.read(),
            chains=self._job.method.draws(carry.state),
            method=self._job.method,
            problem=problem,
            params=carry.params,
        )

    def _begin(self, params: PyTree) -> Carry:
        state = program(self._job.method.init)(self._job.problem, params, key=self._key_start)
        zero = jax.tree.map(jnp.zeros_like, params)
        return Carry(params, self._job.optimizer.value.init(params), state, zero, zero, zero)

    def _last(self, step: int, pace: float) -> int:
        """The step up to which the next chunk goes; the first one is a single step, and tells the pace.

        Rows of the history come at every `HISTORY_ROWS`-th part of the steps, however long a step takes,
        and in between where that many would take too long.
        """
        every = -(-self._steps // HISTORY_ROWS)
        if pace > 0:
            self._chunk = max(1, min(every, int(CHUNK_SECONDS / pace), GROWTH * self._chunk))
        return min(step + self._chunk, (step // every + 1) * every, self._steps)

    def _span(self, step: int, pace: float, seconds: float | None) -> float:
        """All steps of the run: fewer where the time will not do for those asked for."""
        if seconds is None:
            return float(self._steps)
        fits = step + max(0.0, self._limits.left()) / max(pace, 1e-9)
        return float(min(self._steps, math.floor(fits)))

    def _row(self, step: int, summary: ChunkSummary) -> dict[str, float | int]:
        return {
            "step": step,
            "seconds": self._clock.spent(OPTIMISE),
            "wall": self._clock.total,
            "gap": float(summary.info.gap),
            "gradient": float(summary.gradient),
            "noise": float(summary.noise),
            "accepted": float(summary.info.accepted),
            "step_size": float(summary.info.step_size),
            "size": float(summary.info.size),
            "skipped": int(summary.skipped),
        }

    def _stop_if_lost(self, summary: ChunkSummary, count: int, last: int) -> None:
        """Raise `Ended` where going on makes no sense; the parameters before the chunk are returned."""
        if not summary.finite or summary.skipped == count:
            raise Ended(
                Status.NON_FINITE,
                f"the gradient or the parameters were not finite up to step {last}; try a smaller rate, "
                "or look for log(0), sqrt(0) or overflow in the energy",
            )
        if not summary.reach < GONE:
            raise Ended(
                Status.UNBOUNDED,
                f"the chains are {summary.reach:.3g} deviations away from the rows: the energy does not "
                "hold them. Add a term that grows, such as |x|^2 over the rows' variance, or take a "
                "smaller rate",
            )

    def _ending(self, carry: Carry, step: int) -> tuple[Status, str]:
        cosine = float(agreement(carry))
        if np.isfinite(cosine) and cosine < SAME_WAY:
            return (
                Status.CONVERGED,
                "the mean gradient of the last steps is not distinguishable from noise",
            )
        short = " before all steps were taken" if step < self._steps else ""
        return Status.BUDGET, (
            f"the mean gradient still points one way (cosine {cosine:.2f}){short}; give more steps, or "
            "a larger rate"
        )
