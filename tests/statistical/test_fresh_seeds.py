"""Unbiasedness again over twenty seeds that no other test has, with one bound on false alarms.

Every estimator that calls itself unbiased is held against quadrature in every coordinate of the gradient
and the ELBO, seed by seed. Bonferroni's bound over all of these z-tests keeps the chance that a correct
package fails anywhere below `ALARM`.
"""

import functools

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from oracles import by_quadrature, excess, flat
from scipy.special import ndtri
from subjects import accepted, family, target_2d

from quietgrad import estimators

pytestmark = pytest.mark.statistical

SEEDS, REPLICATIONS, DRAWS, WARM_UP = 20, 2000, 8, 10
ALARM = 1e-3
KINDS, TARGET = ("mean-field", "full-rank"), "curved"


def made(name):
    make = estimators.REGISTRY[name]
    return make(**accepted(make, draws=DRAWS))


@functools.cache
def cases():
    target = target_2d(TARGET)
    return [
        (name, kind)
        for name in estimators.REGISTRY
        for kind in KINDS
        if not made(name).biased and made(name).refuses(target, family(kind, 2, small=True)) is None
    ]


@functools.cache
def truth(kind):
    return by_quadrature(target_2d(TARGET), family(kind, 2, small=True))


def tests():
    """How many z-tests there are in all."""
    return sum(SEEDS * len(np.atleast_1d(truth(kind).value)) for _, kind in cases())


@eqx.filter_jit
def samples(estimator, target, q, key):
    key_warm, key_run = jr.split(key)

    def learn(state, key):
        return estimator.step(target, q, state, key=key)[1], None

    state, _ = jax.lax.scan(learn, estimator.init(target, q), jr.split(key_warm, WARM_UP))

    def one(key):
        estimate, _ = estimator.step(target, q, state, key=key)
        return flat(estimate.grad, estimate.elbo)

    return jax.lax.map(one, jr.split(key_run, REPLICATIONS), batch_size=200)


@pytest.mark.parametrize(("name", "kind"), cases(), ids=lambda part: part)
def test_unbiased_over_fresh_seeds(name, kind):
    estimator, target, q = made(name), target_2d(TARGET), family(kind, 2, small=True)
    limit = -ndtri(ALARM / (2 * tests()))
    worst = 0.0
    for seed in range(SEEDS):
        found = samples(estimator, target, q, jr.key(7_000_000 + seed))
        z = excess(found, truth(kind).value, slack=truth(kind).error)
        worst = max(worst, float(np.max(z)))
    print(
        f"{name}, {kind}: at most {worst:.2f} standard errors; {limit:.2f} allowed over {tests()} tests"
    )
    assert worst <= limit
