"""From a family to its deterministic fit: climb in the mean-field family, embed, Newton steps, polish.

Fixed draws overfit families with many parameters per draw, so low-rank, full-rank and flow families
take the mean-field solution as a start. Gaussians find their correlations by Newton steps on the
expected quadratic; the rest is left to stochastic steps.
"""

import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key

from .._checks import whole
from ..estimators import Quiet
from ..families import AbstractFamily, MeanField, embed
from ..loop import Monitor
from ..loop import fit as stochastic_fit
from ..metrics import elbo_terms
from ..results import FitResult, History, Status
from ..targets import Target
from .climb import Climbed, SaaSettings, climb, paired, value_of
from .newton import newton, suits

POLISH_STEPS, WIDE_POLISH_STEPS = 500, 3000
FINAL_DRAWS = 2000
CHECKS = 10


def fit_saa(
    target: Target,
    q: AbstractFamily,
    *,
    monitor: Monitor | None = None,
    settings: SaaSettings = SaaSettings(),
    key: Key[Array, ""],
) -> FitResult:
    """Fit by fixed draws and L-BFGS, then polish with a short run of `quiet` steps."""
    _check(settings, q)
    key_start, key_climb, key_embed, key_polish = jr.split(key, 4)
    Quiet().init(target, q)
    start = q if isinstance(q, MeanField) else MeanField.init(q.dim, key=key_start, base=q.base)
    history = History()
    climbed = climb(target, start, settings, monitor, history, key=key_climb)
    assert isinstance(climbed.q, MeanField)
    inside = embed(climbed.q, q, key=key_embed)
    start, steps, compile_seconds = inside or q, climbed.steps, climbed.compile_seconds
    if inside is not None and suits(target, inside):
        key_newton = jr.fold_in(key_embed, 1)
        found = newton(target, inside, monitor, history, first=steps, key=key_newton)
        start = found.q
        steps, compile_seconds = steps + found.steps, compile_seconds + found.compile_seconds
    begun = Climbed(start, steps, compile_seconds)
    return _polish(target, begun, history, settings, monitor, key=key_polish)


def _check(settings: SaaSettings, q: AbstractFamily) -> None:
    for name in ("draws", "most_draws", "most_iterations", "patience"):
        whole(getattr(settings, name), name, least=1)
    whole(settings.check_draws, "check_draws", least=4)
    objection = settings.sampler.refuses(settings.draws, q.base, q.base_dim)
    if objection is not None:
        raise ValueError(objection)


def _polish(
    target: Target,
    begun: Climbed,
    history: History,
    settings: SaaSettings,
    monitor: Monitor | None,
    *,
    key: Key[Array, ""],
) -> FitResult:
    """Stochastic steps with a decaying rate; kept only if fresh draws do not prefer the start."""
    q, steps = begun.q, settings.polish_steps
    if steps is None:
        steps = POLISH_STEPS if isinstance(q, MeanField) else WIDE_POLISH_STEPS
    e = q.base.sample((FINAL_DRAWS, q.base_dim), q.dtype, key=jr.fold_in(key, 1))
    terms, columns, state = elbo_terms(target, q, e), history.arrays(), None
    compile_seconds = begun.compile_seconds
    if steps:
        done = stochastic_fit(
            target,
            q,
            estimator=Quiet(),
            optimizer=optax.adam(optax.cosine_decay_schedule(settings.polish_rate, steps)),
            steps=steps,
            evaluate_every=max(1, steps // CHECKS),
            monitor=monitor,
            progress=False,
            key=key,
        )
        compile_seconds, state = compile_seconds + done.compile_seconds, done.estimator_state
        columns = _joined(columns, done.history)
        polished = elbo_terms(target, done.q, e)
        if done.status is not Status.NON_FINITE and paired(polished, terms)[0] > 0:
            q, terms = done.q, polished
    value = value_of(terms)
    return FitResult(
        q=q,
        elbo=value["elbo"],
        elbo_error=value["elbo_error"],
        status=Status.CONVERGED if np.isfinite(value["elbo"]) else Status.NON_FINITE,
        steps=begun.steps + steps,
        history=columns,
        compile_seconds=compile_seconds,
        target=target,
        estimator=Quiet(),
        estimator_state=state,
    )


def _joined(first: dict[str, np.ndarray], then: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One history after another; its start repeats the end of the first and is left out."""
    moves = ("step", "seconds")
    return {
        name: np.concatenate([column, then[name][1:] + (column[-1] if name in moves else 0)])
        for name, column in first.items()
    }
