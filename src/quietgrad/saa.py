"""Deterministic fits: fixed draws and L-BFGS (sample average approximation), judged by fresh draws.

The draws are fixed antithetic pairs of scrambled Sobol points, so the ELBO becomes a smooth function
that a quasi-Newton method climbs in few steps. What it climbs is only an approximation: the number of
draws doubles until the ELBO on fresh draws stops improving, and iterates that lose on fresh draws are
thrown away. Fixed draws overfit families with many parameters per draw, so low-rank, full-rank and flow
families take the mean-field solution as a start and leave the rest to stochastic steps.
"""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from .entropy import Sampled
from .estimators import Quiet
from .families import AbstractFamily, MeanField, embed
from .loop import fit as stochastic_fit
from .loop import strong
from .metrics import elbo_terms
from .results import FitResult, History, Status
from .samplers import Antithetic, Rqmc
from .targets import Target

MEMORY = 50
PIECE = 10


class SaaSettings(eqx.Module):
    """`draws` to begin with, `most_draws` to end with; `patience` pieces without gain end a level."""

    draws: int = 32
    most_draws: int = 1024
    most_iterations: int = 500
    patience: int = 2
    check_draws: int = 512
    polish_steps: int = 500
    polish_rate: float = 0.01


class _Climb(NamedTuple):
    params: PyTree
    optimizer: PyTree


def fit_saa(
    target: Target,
    q: AbstractFamily,
    *,
    key: Key[Array, ""],
    settings: SaaSettings = SaaSettings(),
) -> FitResult:
    """Fit by fixed draws and L-BFGS, then polish with a short run of `quiet` steps."""
    key_climb, key_embed, key_polish = jr.split(key, 3)
    estimator = Quiet()
    estimator.init(target, q)
    if isinstance(q, MeanField):
        return _polish(target, _climb(target, q, settings, key_climb), estimator, settings, key_polish)
    key_start, key_climb = jr.split(key_climb)
    start = _climb(target, MeanField.init(q.dim, key=key_start), settings, key_climb)
    assert isinstance(start.q, MeanField)
    inside = embed(start.q, q, key=key_embed)
    begun = eqx.tree_at(lambda r: r.q, start, q if inside is None else inside)
    return _polish(target, begun, estimator, settings, key_polish)


def _climb(target: Target, q: MeanField, settings: SaaSettings, key: Key[Array, ""]) -> FitResult:
    """L-BFGS at growing numbers of draws; every piece is judged on the same fresh draws."""
    key_draws, key_check = jr.split(key)
    params, static = eqx.partition(q, eqx.is_inexact_array)
    check = q.base.sample((settings.check_draws, q.base_dim), q.dtype, key=key_check)

    def judge(params: PyTree) -> Float[Array, " draws"]:
        return elbo_terms(target, eqx.combine(params, static), check)

    history, compile_seconds = History(), 0.0
    best, best_terms = params, judge(params)
    history.add(0, 0.0, _value(best_terms))
    draws, iterations = settings.draws, 0
    while draws <= settings.most_draws:
        sampler = Antithetic(Rqmc())
        state = sampler.init(draws, q.base_dim)
        e = sampler.draw(state, q.base, (draws, q.base_dim), q.dtype, key=key_draws)
        began = time.perf_counter()
        climb = strong(_Climb(best, optax.lbfgs(memory_size=MEMORY).init(best)))
        jax.block_until_ready(_piece(target, static, e, climb, jnp.asarray(0)))
        compile_seconds += time.perf_counter() - began
        level_best, level_terms, idle = best, best_terms, 0
        for _ in range(settings.most_iterations // PIECE):
            began = time.perf_counter()
            climb = jax.block_until_ready(_piece(target, static, e, climb, jnp.asarray(PIECE)))
            spent = time.perf_counter() - began
            iterations += PIECE
            terms = judge(climb.params)
            history.add(iterations, spent, _value(terms))
            gain, error = _paired(terms, level_terms)
            if gain > 0:
                level_best, level_terms = climb.params, terms
            idle = 0 if gain > 2 * error + 0.01 else idle + 1
            if idle >= settings.patience:
                break
        gain, error = _paired(level_terms, best_terms)
        if gain > 0:
            best, best_terms = level_best, level_terms
        if draws > settings.draws and gain < max(2 * error, 0.05):
            break
        draws *= 2
    value = _value(best_terms)
    return FitResult(
        q=eqx.combine(best, static),
        elbo=value["elbo"],
        elbo_error=value["elbo_error"],
        status=Status.CONVERGED,
        steps=iterations,
        history=history.arrays(),
        compile_seconds=compile_seconds,
        target=target,
        estimator=Quiet(),
        estimator_state=None,
    )


def _polish(
    target: Target,
    begun: FitResult,
    estimator: Quiet,
    settings: SaaSettings,
    key: Key[Array, ""],
) -> FitResult:
    """Stochastic steps with a decaying rate; kept only if fresh draws do not prefer the start."""
    schedule = optax.cosine_decay_schedule(settings.polish_rate, settings.polish_steps)
    done = stochastic_fit(
        target,
        begun.q,
        estimator=estimator,
        optimizer=optax.adam(schedule),
        steps=settings.polish_steps,
        evaluate_every=settings.polish_steps,
        progress=False,
        key=key,
    )
    e = begun.q.base.sample((2000, begun.q.base_dim), begun.q.dtype, key=jr.fold_in(key, 1))
    gain, _ = _paired(elbo_terms(target, done.q, e), elbo_terms(target, begun.q, e))
    q = done.q if done.status is not Status.NON_FINITE and gain > 0 else begun.q
    value = _value(elbo_terms(target, q, e))
    columns: dict[str, Any] = {}
    for name in ("step", "seconds", "elbo", "elbo_error"):
        offset = begun.history[name][-1] if name in ("step", "seconds") else 0
        columns[name] = jnp.concatenate([begun.history[name], done.history[name][1:] + offset])
    return FitResult(
        q=q,
        elbo=value["elbo"],
        elbo_error=value["elbo_error"],
        status=begun.status,
        steps=begun.steps + done.steps,
        history={name: jax.device_get(column) for name, column in columns.items()},
        compile_seconds=begun.compile_seconds + done.compile_seconds,
        target=target,
        estimator=estimator,
        estimator_state=done.estimator_state,
    )


def _objective(target: Target, static: PyTree, e: Array) -> Any:
    """Minus the ELBO at fixed draws, with its gradient by one pass."""

    @jax.custom_vjp
    def loss(params: PyTree) -> Float[Array, ""]:
        return forward(params)[0]

    def forward(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
        path = Sampled().path(eqx.combine(params, static), e)
        value, slope = jax.vmap(jax.value_and_grad(target.log_density))(path.z)
        w = jnp.full(e.shape[0], 1 / e.shape[0], e.dtype)
        grad = jax.tree.map(jnp.negative, path.pull_back(slope, w))
        return -jnp.mean(value - path.log_q), grad

    loss.defvjp(forward, lambda grad, c: (jax.tree.map(lambda g: c * g, grad),))
    return loss


@eqx.filter_jit
def _piece(target: Target, static: PyTree, e: Array, climb: _Climb, count: Int[Array, ""]) -> _Climb:
    """`count` L-BFGS iterations; a step to non-finite parameters is not taken."""
    optimizer = optax.lbfgs(memory_size=MEMORY)
    loss = _objective(target, static, e)
    value_and_grad = optax.value_and_grad_from_state(loss)

    def iterate(_: Int[Array, ""], climb: _Climb) -> _Climb:
        value, grad = value_and_grad(climb.params, state=climb.optimizer)
        updates, state = optimizer.update(
            grad, climb.optimizer, climb.params, value=value, grad=grad, value_fn=loss
        )
        params = optax.apply_updates(climb.params, updates)
        after = _Climb(params, state)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]))
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, climb)

    return jax.lax.fori_loop(0, count, iterate, climb)


def _value(terms: Float[Array, " draws"]) -> dict[str, float]:
    error = jnp.std(terms, ddof=1) / jnp.sqrt(terms.size)
    return {"elbo": float(jnp.mean(terms)), "elbo_error": float(error)}


def _paired(a: Float[Array, " draws"], b: Float[Array, " draws"]) -> tuple[float, float]:
    """Mean and standard error of a - b; a non-finite difference counts as a loss."""
    difference = a - b
    gain, error = jnp.mean(difference), jnp.std(difference, ddof=1) / jnp.sqrt(a.size)
    return (float(gain), float(error)) if jnp.isfinite(gain) else (float("-inf"), 0.0)
