"""L-BFGS on the ELBO at fixed draws, at growing numbers of them.

The draws are fixed antithetic pairs of scrambled Sobol points, so the ELBO becomes a smooth function
that a quasi-Newton method climbs in few steps. What it climbs is only an approximation: the number of
draws doubles until the ELBO on fresh draws stops improving, and iterates that lose on fresh draws are
thrown away. Draws are worked through in blocks whose number is known at run time only, so that all
numbers of draws share one program.
"""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from .._checks import part
from ..entropy import Sampled
from ..families import AbstractFamily, MeanField
from ..loop import Monitor
from ..metrics import elbo_terms
from ..results import History
from ..samplers import REGISTRY as SAMPLERS
from ..samplers import AbstractSampler, Antithetic, Rqmc
from ..targets import Target
from .lbfgs import Lbfgs, begin, descend

MEMORY = 50
PIECE = 10


class SaaSettings(eqx.Module):
    """How draws grow and what judges.

    `draws` to begin with, a block; they double up to `most_draws`. `patience` pieces of ten iterations
    that gain less than `gain` nats end a level, and a level that gains less ends the climb. With `fresh`
    off the fixed draws judge themselves, as in DADVI (Giordano et al. 2024). `polish_steps` quiet steps
    follow: 500, or 3000 for families beyond mean-field.
    """

    sampler: AbstractSampler = eqx.field(
        converter=lambda given: part(given, SAMPLERS, AbstractSampler, "sampler"),
        default=Antithetic(Rqmc()),
    )
    draws: int = 32
    most_draws: int = 1024
    most_iterations: int = 500
    patience: int = 2
    gain: float = 0.1
    check_draws: int = 128
    fresh: bool = True
    polish_steps: int | None = None
    polish_rate: float = 0.01


class Climbed(NamedTuple):
    """Where it ended, and how it went."""

    q: AbstractFamily
    steps: int
    compile_seconds: float


class _Fixed(eqx.Module):
    """What every piece shares: the blocks of fixed draws and the draws that judge."""

    target: Target
    static: PyTree
    blocks: Float[Array, "blocks draws base"]
    judges: Float[Array, "checks base"]


def climb(
    target: Target,
    q: MeanField,
    settings: SaaSettings,
    monitor: Monitor | None,
    history: History,
    *,
    key: Key[Array, ""],
) -> Climbed:
    """Double the draws until fresh draws see no gain; the history is written to."""
    key_draws, key_check = jr.split(key)
    params, static = eqx.partition(q, eqx.is_inexact_array)
    blocks = _blocks(q, settings, key_draws)
    shape = (settings.check_draws, q.base_dim)
    judges = Antithetic().draw(None, q.base, shape, q.dtype, key=key_check)
    fixed = _Fixed(target, static, blocks, judges if settings.fresh else blocks[0])
    pieces = max(1, settings.most_iterations // PIECE)

    began = time.perf_counter()
    terms = _terms(fixed, params)
    jax.block_until_ready(_piece(fixed, _begin(params), *_numbers(1, 0)))
    compile_seconds = time.perf_counter() - began

    def record(step: int, spent: float, params: PyTree, terms: Array) -> None:
        more = {} if monitor is None else monitor(eqx.combine(params, static), None, step)
        history.add(step, spent, {**value_of(terms), **more})

    record(0, 0.0, params, terms)
    best, best_terms, steps, count = params, terms, 0, 1
    while count <= len(blocks):
        began = time.perf_counter()
        state = _begin(best)
        level, level_terms, waited = best, best_terms, 0
        for _ in range(pieces):
            state, terms = _piece(fixed, state, *_numbers(count, PIECE))
            gain, error = paired(terms, level_terms)
            spent = time.perf_counter() - began
            steps += PIECE
            if gain > 0:
                level, level_terms = state.params, terms
            record(steps, spent, level, level_terms)
            waited = 0 if gain > 2 * error + settings.gain else waited + 1
            if waited >= settings.patience:
                break
            began = time.perf_counter()
        gain, error = paired(level_terms, best_terms)
        if gain > 0:
            best, best_terms = level, level_terms
        if count > 1 and gain < max(2 * error, settings.gain):
            break
        count *= 2
    return Climbed(eqx.combine(best, static), steps, compile_seconds)


def _blocks(
    q: MeanField, settings: SaaSettings, key: Key[Array, ""]
) -> Float[Array, "blocks draws base"]:
    """Fixed draws; with pairs, every block holds draws together with their mirror images."""
    count = max(1, settings.most_draws // settings.draws)
    sampler, draws = settings.sampler, settings.draws
    pairs = isinstance(sampler, Antithetic)
    half, each = (sampler.half, draws // 2) if pairs else (sampler, draws)
    state = half.init(count * each, q.base_dim)
    e = half.draw(state, q.base, (count * each, q.base_dim), q.dtype, key=key)
    e = e.reshape(count, each, q.base_dim)
    return jnp.concatenate([e, -e], axis=1) if pairs else e


@eqx.filter_jit
def _terms(fixed: _Fixed, params: PyTree) -> Float[Array, " draws"]:
    """ELBO terms at the draws that judge."""
    return elbo_terms(fixed.target, eqx.combine(params, fixed.static), fixed.judges)


def _objective(fixed: _Fixed, count: Int[Array, ""]) -> Any:
    """Minus the ELBO at the first `count` blocks, with its gradient by one pass."""

    @jax.custom_vjp
    def loss(params: PyTree) -> Float[Array, ""]:
        return forward(params)[0]

    def block(params: PyTree, e: Float[Array, "draws base"]) -> tuple[Float[Array, ""], PyTree]:
        path = Sampled().path(_family(params, fixed), e)
        value, slope = jax.vmap(jax.value_and_grad(fixed.target.log_density))(path.z)
        w = jnp.full(e.shape[0], 1 / e.shape[0], e.dtype)
        grad = jax.tree.map(jnp.negative, path.pull_back(slope, w))
        return -jnp.mean(value - path.log_q), grad

    def forward(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
        def add(i: Int[Array, ""], sums: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            return jax.tree.map(jnp.add, sums, block(params, fixed.blocks[i]))

        sums = jax.lax.fori_loop(1, count, add, block(params, fixed.blocks[0]))
        return jax.tree.map(lambda x: x / count.astype(x.dtype), sums)

    loss.defvjp(forward, lambda grad, c: (jax.tree.map(lambda g: c * g, grad),))
    return loss


def _family(params: PyTree, fixed: _Fixed) -> AbstractFamily:
    return eqx.combine(params, fixed.static)


@eqx.filter_jit
def _begin(params: PyTree) -> Lbfgs:
    return begin(params, MEMORY)


@eqx.filter_jit
def _piece(
    fixed: _Fixed, at: Lbfgs, count: Int[Array, ""], iterations: Int[Array, ""]
) -> tuple[Lbfgs, Float[Array, " draws"]]:
    """L-BFGS iterations, and what the judges say."""
    at = descend(_objective(fixed, count), at, iterations, MEMORY)
    return at, _terms(fixed, at.params)


def _numbers(*values: int) -> tuple[Array, ...]:
    return tuple(jnp.asarray(value, jnp.int32) for value in values)


def value_of(terms: Float[Array, " draws"]) -> dict[str, float]:
    """The ELBO and its standard error."""
    own = np.asarray(terms, float)
    return {"elbo": float(np.mean(own)), "elbo_error": float(np.std(own, ddof=1) / np.sqrt(own.size))}


def paired(a: Float[Array, " draws"], b: Float[Array, " draws"]) -> tuple[float, float]:
    """Mean and standard error of a - b; a non-finite difference counts as a loss."""
    # On the host: a handful of numbers, and one transfer is quicker than five small programs.
    difference = np.asarray(a, float) - np.asarray(b, float)
    if not np.all(np.isfinite(difference)):
        return float("-inf"), 0.0
    return float(np.mean(difference)), float(np.std(difference, ddof=1) / np.sqrt(difference.size))
