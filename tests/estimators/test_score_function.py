"""The score function where it is needed: a target whose derivative says nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, excess, replicate
from subjects import family

from quietgrad.estimators import REGISTRY, ScoreFunction, estimator
from quietgrad.estimators.weights import Polynomial, Ridge, Stein
from quietgrad.targets import Target

DIM = 2
STEPS = jnp.arange(-40, 41)


def height(k):
    """The log density on the cell around the whole number k."""
    return -0.3 * (k - 1.0) ** 2


STAIRS = {
    "rounded": Target.from_logdensity(lambda z: jnp.sum(height(jnp.round(z))), dim=DIM),
    "stopped": Target.from_logdensity(
        lambda z: jnp.sum(height(jax.lax.stop_gradient(jnp.floor(z + 0.5)))), dim=DIM
    ),
}
FORMS = [name for name in REGISTRY if isinstance(estimator(name), ScoreFunction)]


def elbo(q):
    """sum_k height(k) P(k - 1/2 < z_i < k + 1/2) for each coordinate, and the entropy."""
    std = jnp.exp(q.log_std)[:, None]
    edges = [(STEPS[None, :] + side - q.loc[:, None]) / std for side in (-0.5, 0.5)]
    below, above = (jax.scipy.stats.norm.cdf(edge) for edge in edges)
    return jnp.sum(height(STEPS)[None, :] * (above - below)) + q.entropy()


def gradients(made, target, q, count, key):
    state = made.init(target, q)
    return replicate(lambda k: ravel_pytree(made.step(target, q, state, key=k)[0].grad)[0], count, key)


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("target", STAIRS)
def test_stairs_are_differentiated(target, name, key):
    q = family("mean-field", DIM)
    truth = np.asarray(ravel_pytree(jax.jit(jax.grad(elbo))(q))[0])
    made = estimator(name)
    assert not made.biased
    assert_mean(gradients(made, STAIRS[target], q, 4000, key), truth)


def test_pathwise_gradients_miss_the_stairs(key):
    """The comparison above can fail: autodiff of a step function is zero."""
    q = family("mean-field", DIM)
    truth = np.asarray(ravel_pytree(jax.jit(jax.grad(elbo))(q))[0])
    assert np.max(excess(gradients(estimator("nocv"), STAIRS["rounded"], q, 100, key), truth)) > 5


def test_leave_one_out_baseline_reduces_the_variance(key):
    """By a paired comparison, coordinate by coordinate: the same draws for the same key."""
    q, target = family("mean-field", DIM), STAIRS["rounded"]
    plain, ours = (gradients(estimator(name), target, q, 2000, key) for name in ("score", "score-loo"))
    squares = [(g - np.mean(g, axis=0)) ** 2 for g in (plain, ours)]
    gained = np.sum(squares[0] - squares[1], axis=1)
    assert np.mean(gained) > 5 * np.std(gained) / np.sqrt(len(gained))


def test_baseline_and_cross_fitted_weights_are_biased_together():
    weights = Stein(Polynomial(), Ridge(), "leave-one-out")
    assert not ScoreFunction(weights=weights).biased
    assert ScoreFunction(weights=weights, baseline="leave-one-out").biased


def test_costs_are_values_only(key):
    q, target = family("mean-field", DIM), STAIRS["rounded"]
    for name in FORMS:
        made = estimator(name, draws=7)
        step = jax.eval_shape(lambda k, m=made: m.step(target, q, m.init(target, q), key=k)[0], key)
        assert step.cost == (0, 7, 0)


def test_one_draw_has_no_others_for_a_baseline():
    with pytest.raises(ValueError, match="at least 2 draws; got 1"):
        estimator("score-loo", draws=1).init(STAIRS["rounded"], family("mean-field", DIM))
