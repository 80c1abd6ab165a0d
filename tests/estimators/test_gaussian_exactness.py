"""A Gaussian target and q of the same kind: what is exact in theory leaves no variance.

QuadCV learns the target's quadratic to rounding. Its coefficient, a ratio of averages over earlier
draws, is one only where the mean gradient vanishes, so q stands at the target for it; the others are
exact for any q of the family.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from subjects import family

from quietgrad import families
from quietgrad.estimators import Pathwise, estimator
from quietgrad.estimators.weights import GradientDescent, LeastSquares, Polynomial, Stein
from quietgrad.evaluation.gradient_noise import variance_ratio
from quietgrad.families import HasPathMetric
from quietgrad.targets import Target

LOCATION_SCALE = [name for name, cls in families.REGISTRY.items() if issubclass(cls, HasPathMetric)]
EVERY_FAMILY = pytest.mark.parametrize("name", LOCATION_SCALE)
EXACT = 1e-6


def optimum(name):
    """A member of the family, and the Gaussian target with its mean and covariance."""
    q: Any = family(name, 2, small=True)
    mean, precision = q.mean(), jnp.linalg.inv(q.covariance_matmul(jnp.eye(q.dim)))

    def log_density(z):
        return -0.5 * (z - mean) @ precision @ (z - mean)

    return q, Target.from_logdensity(log_density, dim=q.dim)


def moved(q):
    """Another member of the family, away from the optimum."""
    params, static = eqx.partition(q, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: 0.8 * x + 0.3, params), static)


def ratio(target, q, made, key, state=None):
    """Variance relative to the plain estimator with the same entropy on the same draws."""
    plain = Pathwise(draws=made.draws, entropy=made.entropy)
    return variance_ratio(target, q, made, state=state, baseline=plain, repeats=50, key=key).ratio


def learned(made, target, q, key):
    """The state after a fit of the quadratic, with the rate lowered step by step."""

    @eqx.filter_jit
    def run(state, key):
        def step(carry, inputs):
            rate, key = inputs
            slower = eqx.tree_at(lambda m: m.surrogate.closed.rate, made, rate)
            return slower.step(target, q, carry, key=key)[1], None

        rates = jnp.geomspace(3e-2, 1e-5, 3000)
        return jax.lax.scan(step, state, (rates, jr.split(key, len(rates))))[0]

    return run(made.init(target, q), key)


@pytest.mark.turns(2)
@EVERY_FAMILY
def test_quadcv_is_exact_once_fitted(name, key):
    q, target = optimum(name)
    made = estimator("quadcv", draws=10, entropy="closed")
    key_fit, key_ratio = jr.split(key)
    state = learned(made, target, q, key_fit)
    assert ratio(target, q, made, key_ratio, state) < EXACT
    # Before the fit there is nothing to subtract.
    assert ratio(target, q, made, key_ratio) > 0.9


@pytest.mark.turns(3)
@pytest.mark.parametrize("move", [lambda q: q, moved], ids=["optimum", "elsewhere"])
@EVERY_FAMILY
def test_taylor_is_exact(name, move, key):
    q, target = optimum(name)
    assert ratio(target, move(q), estimator("taylor"), key) < EXACT


@pytest.mark.turns(3)
@pytest.mark.parametrize("entropy", ["sampled", "closed", "stl"])
@EVERY_FAMILY
def test_least_squares_stein_weights_are_exact(name, entropy, key):
    """Second order, in-sample, with more draws than the 9 columns of three base coordinates."""
    q, target = optimum(name)
    weights = Stein(Polynomial(2), LeastSquares(), "in-sample")
    made = Pathwise(weights=weights, entropy=entropy, draws=15)
    assert ratio(target, moved(q), made, key) < EXACT


@pytest.mark.turns(2, first=1)
@EVERY_FAMILY
def test_descent_to_convergence_is_exact_too(name, key):
    q, target = optimum(name)
    weights = Stein(Polynomial(2), GradientDescent("converge"), "in-sample")
    assert ratio(target, moved(q), Pathwise(weights=weights, draws=15), key) < EXACT


def test_first_order_columns_are_not_enough(key):
    """The ratios above can fail: gradients of scales are quadratic in the draw."""
    q, target = optimum("mean-field")
    weights = Stein(Polynomial(1), LeastSquares(), "in-sample")
    assert ratio(target, moved(q), Pathwise(weights=weights, draws=15), key) > 1e-2
