"""Stochastic gradient steps as a method: the user's optimiser, estimator and number of steps."""

from typing import Any

import equinox as eqx

from .._util.checks import described, whole
from .._util.later import optax
from ..diagnostics.propriety import nowhere_finite
from ..estimators import AbstractEstimator, resolve
from ..evaluation.elbo_terms import paired_difference
from ..families import AbstractFamily
from ..session import Candidate
from ..session.clock import EVALUATE
from ..session.history import Plateau, Reached
from ..solvers import Stop, drive
from ..solvers.choosing import Switching
from ..solvers.steps import read_optimizer
from ..solvers.stochastic import NON_FINITE, StochasticSteps
from ..status import Status
from ..targets import Target
from .method import AbstractMethod, Ending, Problem, Recorder

STILL_RISING = "the ELBO was still rising, or too noisy to tell; give more steps"
BLOWN_UP = (
    "the parameters turned NaN or infinite after this step, and q is the best answer before it; try a "
    "smaller learning rate, optax.clip_by_global_norm, more draws, or check the log density for log(0), "
    "sqrt(0) or overflow far from the mode"
)
NOISY = (
    "the ELBO has stopped rising, but {gain:.2f} ± {error:.2f} nats below that of the mean of late "
    "iterates: the noise of the steps keeps it there; let the rate decay (optax.cosine_decay_schedule), "
    'take more draws, or use method="auto"'
)


def _optimizer(given: Any) -> "optax.GradientTransformation | None":
    if given is not None and not isinstance(given, optax.GradientTransformation):
        made = described(given)
        raise TypeError(f"optimizer must be made by optax, e.g. optax.adam(1e-2); got {made}")
    return given


class Sgd(AbstractMethod):
    """Stochastic gradient steps with any optax optimiser and any gradient estimator.

    The answer is the last q, or an earlier one that is clearly better.

    Args:
        estimator: an instance or a registered name. "auto" begins with the cheapest quiet one and
            changes it when noise dominates and another has less variance x cost (`switching`).
        optimizer: any optax optimiser; None is Adam at 0.01.
        steps: how many.
        evaluate_every: steps between evaluations of the ELBO; None is a hundredth of the run, and fewer
            evaluations where they would take more than their share of the time.
        stop: `Plateau()` ends the run once the ELBO has stopped rising, `Reached(value)` once it is
            there; None takes all steps.
        by_clock: with False nothing depends on seconds, and a run can be repeated exactly: no evaluation
            is left out, and "auto" compares estimators by gradient evaluations.
        gain: nats. A run whose mean of late iterates is clearly better by this is held by the noise of
            its steps, and ends with "budget" and a hint that says so.
        switching: when estimator="auto" compares other estimators.
    """

    estimator: AbstractEstimator | str = eqx.field(
        converter=lambda given: given if given == "auto" else resolve(given), default="quiet"
    )
    optimizer: "optax.GradientTransformation | None" = eqx.field(converter=_optimizer, default=None)
    steps: int = eqx.field(converter=lambda n: whole(n, "steps", least=1), default=10_000)
    evaluate_every: int | None = None
    stop: Plateau | Reached | None = None
    by_clock: bool = True
    gain: float = 0.5
    switching: Switching = Switching()

    def __check_init__(self):
        """Evaluations come after whole steps."""
        if self.evaluate_every is not None:
            whole(self.evaluate_every, "evaluate_every", least=1)

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """What the estimator objects to."""
        del batch_size
        return None if isinstance(self.estimator, str) else self.estimator.refuses(target, q)

    def run(self, problem: Problem, session: Recorder) -> Ending:
        """Evaluate the start, then take the steps."""
        session.prefer_last()
        start = session.evaluate(problem.q, 0)
        if start.terms.bad == 2 * start.terms.values.size:
            return nowhere_finite(problem.target, session.draws_of(problem.q)).ending
        return self.steps_from(session, start)

    def steps_from(self, session: Recorder, start: Candidate) -> Ending:
        """The steps from a candidate, and how they ended."""
        optimizer = optax.adam(1e-2) if self.optimizer is None else self.optimizer
        params = eqx.filter(start.q, eqx.is_inexact_array)
        solver = StochasticSteps(
            None if isinstance(self.estimator, str) else self.estimator,
            read_optimizer(optimizer, params, optimizer.init(params)),
            self.steps,
            self.evaluate_every or -(-self.steps // 100),
            by_clock=self.by_clock,
            switching=self.switching,
        )
        rule = Plateau() if self.stop is None else self.stop
        stop = Stop(
            patience=self.steps + 1,
            iterations=self.steps,
            keep="last",
            rule=rule,
            obey=self.stop is not None,
        )
        run = drive(solver, start, session, stop, name="steps")
        if run.end == NON_FINITE:
            return Status.NON_FINITE, BLOWN_UP
        if not rule.reached(run.values):
            return Status.BUDGET, STILL_RISING
        if isinstance(rule, Reached):
            return Status.CONVERGED, "the value that was asked for is reached"
        with session.clock.phase(EVALUATE):
            late, last = solver.late_mean(run.state), run.feedback
            if late is not None and last is not None:
                held = paired_difference(session.terms(late), last.found.terms)
                if held.clearly_above(self.gain):
                    return Status.BUDGET, NOISY.format(gain=held.nats, error=held.error)
        return Status.CONVERGED, "the ELBO has stopped rising"
