"""Noise of gradient estimators: variance, variance ratio from paired draws, bias and MSE.

The variance is the paper's, V = (1/R) sum_j |g_j - mean g|^2 over R gradients at one lambda. The R
gradients are kept as running moments of `GROUPS` groups, never as an (R, params) array; the spread
between groups gives the standard errors.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from .. import estimators
from .._util.checks import whole
from .._util.compiling import program
from ..estimators import AbstractEstimator, resolve
from ..families import AbstractFamily
from ..targets import Target

GROUPS = 10


class GradientVariance(eqx.Module):
    """Trace of the covariance of an estimator, in all and for each block of parameters.

    `mean` and `each` have the gradient's mean and variance for every parameter, in the form of q.
    """

    total: Float[Array, ""]
    error: Float[Array, ""]
    blocks: dict[str, Float[Array, ""]]
    mean: PyTree
    each: PyTree


class VarianceRatio(eqx.Module):
    """Variance of an estimator over that of the plain one from the same draws."""

    ratio: Float[Array, ""]
    error: Float[Array, ""]
    blocks: dict[str, Float[Array, ""]]


class GradientError(eqx.Module):
    """Squared bias, variance and mean squared error against a large-sample reference.

    `bias_squared` is corrected for the noise of both means, so it can come out slightly negative when
    there is no bias; `bias_error` is its standard error.
    """

    bias_squared: Float[Array, ""]
    bias_error: Float[Array, ""]
    variance: Float[Array, ""]
    mse: Float[Array, ""]


class _Moments(NamedTuple):
    """Mean gradients (leaves with a leading axis of groups) and summed squared deviations."""

    mean: PyTree
    deviations: PyTree


def gradient_variance(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator | str = "nocv",
    *,
    state: PyTree = None,
    repeats: int = 100,
    batch_size: int | None = None,
    key: Key[Array, ""],
) -> GradientVariance:
    """Variance of `repeats` gradients at `q`, with the estimator's `state` held fixed.

    With `batch_size` each gradient sees its own random rows, and the variance includes their noise.
    """
    (moments,), each = _sample(target, q, [(estimator, state)], repeats, batch_size, key)
    return _variance(moments, each)


def variance_ratio(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator | str,
    *,
    state: PyTree = None,
    baseline: AbstractEstimator | str | None = None,
    repeats: int = 100,
    batch_size: int | None = None,
    key: Key[Array, ""],
) -> VarianceRatio:
    """Variance relative to `baseline`, both fed the same keys, so the same draws and rows.

    The default baseline is NoCV with as many draws.
    """
    estimator = resolve(estimator)
    if baseline is None:
        baseline = estimators.Pathwise(draws=estimator.draws_for(q))
    pair = [(estimator, state), (resolve(baseline), None)]
    both, each = _sample(target, q, pair, repeats, batch_size, key)
    ours, plain = (_variance(moments, each) for moments in both)
    leave_one_out = jnp.stack([_left_out(moments) for moments in both])
    ratios = leave_one_out[0] / leave_one_out[1]
    jackknife = (GROUPS - 1) * jnp.var(ratios)
    blocks = {name: ours.blocks[name] / plain.blocks[name] for name in ours.blocks}
    return VarianceRatio(ours.total / plain.total, jnp.sqrt(jackknife), blocks)


def gradient_error(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator | str,
    *,
    state: PyTree = None,
    reference: AbstractEstimator | str | None = None,
    reference_repeats: int = 1000,
    repeats: int = 1000,
    key: Key[Array, ""],
) -> GradientError:
    """Bias and MSE of an estimator against the mean of many gradients of an unbiased `reference`.

    The default reference is NoCV with 100 draws, `reference_repeats` times.
    """
    reference = estimators.Pathwise(draws=100) if reference is None else resolve(reference)
    if reference.biased:
        raise ValueError("the reference estimator must be unbiased")
    key_ours, key_truth = jr.split(key)
    (ours,), each = _sample(target, q, [(estimator, state)], repeats, None, key_ours)
    pairs = [(reference, None)]
    (truth,), truth_each = _sample(target, q, pairs, reference_repeats, None, key_truth)
    variance = _variance(ours, each).total
    difference = jax.tree.map(
        lambda a, b: jnp.mean(a, axis=0) - jnp.mean(b, axis=0), ours.mean, truth.mean
    )
    noise = jax.tree.map(
        lambda a, b: _mean_variance(a, each) + _mean_variance(b, truth_each),
        ours.deviations,
        truth.deviations,
    )
    squared = sum(jnp.sum(d**2 - v) for d, v in _pairs(difference, noise))
    # Var of sum(d^2 - v) for normal d with mean m and variance v: sum(4 m^2 v + 2 v^2).
    spread = sum(
        jnp.sum(4 * jnp.maximum(d**2 - v, 0) * v + 2 * v**2) for d, v in _pairs(difference, noise)
    )
    bias_squared = jnp.asarray(squared)
    return GradientError(bias_squared, jnp.sqrt(spread), variance, variance + bias_squared)


def _sample(
    target: Target,
    q: AbstractFamily,
    pairs: list[tuple[AbstractEstimator | str, PyTree]],
    repeats: int,
    batch_size: int | None,
    key: Key[Array, ""],
) -> tuple[list[_Moments], int]:
    each = -(-whole(repeats, "repeats", least=2 * GROUPS) // GROUPS)
    resolved = [(resolve(estimator), state) for estimator, state in pairs]
    ready = [(e, e.init(target, q) if state is None else state) for e, state in resolved]
    if batch_size is not None:
        batch_size = target.check_batch_size(batch_size)
    return _moments(target, q, ready, each, batch_size, key), each


@program
def _moments(
    target: Target,
    q: AbstractFamily,
    pairs: list[tuple[AbstractEstimator, PyTree]],
    each: int,
    batch_size: int | None,
    key: Key[Array, ""],
) -> list[_Moments]:
    """Running moments of `each` gradients in every group, all estimators on the same keys."""

    def gradients(key: Key[Array, ""]) -> list[PyTree]:
        view = target
        if batch_size is not None:
            key, key_rows = jr.split(key)
            view = target.batch(jr.choice(key_rows, target.rows, (batch_size,), replace=False))
        return [estimator.step(view, q, state, key=key)[0].grad for estimator, state in pairs]

    def group(key: Key[Array, ""]) -> list[_Moments]:
        def add(carry: tuple[Array, list[_Moments]], key: Key[Array, ""]) -> tuple:
            count, moments = carry
            updated = [_welford(m, grad, count) for m, grad in zip(moments, gradients(key), strict=True)]
            return (count + 1, updated), None

        zero = jax.tree.map(jnp.zeros_like, eqx.filter(q, eqx.is_inexact_array))
        start = [_Moments(zero, zero) for _ in pairs]
        (_, moments), _ = jax.lax.scan(add, (jnp.ones((), int), start), jr.split(key, each))
        return moments

    return jax.lax.map(group, jr.split(key, GROUPS))


def _welford(moments: _Moments, grad: PyTree, count: Array) -> _Moments:
    step = jax.tree.map(jnp.subtract, grad, moments.mean)
    mean = jax.tree.map(lambda m, d: m + d / count, moments.mean, step)
    deviations = jax.tree.map(lambda s, d, g, m: s + d * (g - m), moments.deviations, step, grad, mean)
    return _Moments(mean, deviations)


def _variance(moments: _Moments, each: int) -> GradientVariance:
    # All R gradients: deviations within the groups plus those of the group means.
    variances = jax.tree.map(
        lambda s, m: (
            (jnp.sum(s, axis=0) / each + jnp.sum((m - jnp.mean(m, axis=0)[None]) ** 2, axis=0)) / GROUPS
        ),
        moments.deviations,
        moments.mean,
    )
    blocks = {
        jax.tree_util.keystr(path).lstrip("."): jnp.sum(value)
        for path, value in jax.tree_util.tree_leaves_with_path(variances)
    }
    within = _per_group(moments)
    error = jnp.std(within, ddof=1) / jnp.sqrt(GROUPS) / (each - 1)
    mean = jax.tree.map(lambda m: jnp.mean(m, axis=0), moments.mean)
    return GradientVariance(sum(blocks.values(), jnp.zeros(())), error, blocks, mean, variances)


def _per_group(moments: _Moments) -> Float[Array, " groups"]:
    sums = [jnp.sum(s.reshape(GROUPS, -1), axis=1) for s in jax.tree.leaves(moments.deviations)]
    return jnp.sum(jnp.stack(sums), axis=0)


def _left_out(moments: _Moments) -> Float[Array, " groups"]:
    per_group = _per_group(moments)
    return jnp.sum(per_group) - per_group


def _mean_variance(deviations: Float[Array, "groups ..."], each: int) -> Float[Array, "..."]:
    """Variance of the mean of all gradients, coordinate by coordinate."""
    return jnp.sum(deviations, axis=0) / (GROUPS * (each - 1)) / (GROUPS * each)


def _pairs(a: PyTree, b: PyTree) -> list[tuple[Array, Array]]:
    return list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
