"""Unbiasedness and variance again over twenty seeds that no other test has, with one bound on alarms.

Every estimator that calls itself unbiased is held against quadrature in every coordinate of the gradient
and the ELBO, and every one that promises a bound on its variance against the plain estimator, seed by
seed. Bonferroni's bound over all of these z-tests keeps the chance that a correct package fails anywhere
below `ALARM`.
"""

import functools
import math

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from oracles import by_quadrature, excess, flat, standard_error
from scipy.special import ndtri
from subjects import accepted, family, target_2d

from quietgrad import estimators
from quietgrad.estimators import entropy

pytestmark = pytest.mark.statistical

SEEDS, REPLICATIONS, DRAWS, WARM_UP = 20, 2000, 8, 10
ALARM = 1e-3
KINDS, TARGET = ("mean-field", "full-rank"), "curved"


def made(name, **settings):
    make = estimators.REGISTRY[name]
    return make(**accepted(make, draws=DRAWS), **settings)


def start(kind):
    return family(kind, 2, small=True)


@functools.cache
def accepted_pairs():
    target = target_2d(TARGET)
    pairs = [(name, kind) for name in estimators.REGISTRY for kind in KINDS]
    return [(name, kind) for name, kind in pairs if made(name).refuses(target, start(kind)) is None]


def bound(name, kind):
    return made(name).variance_bound(start(kind))


@functools.cache
def unbiased():
    return [(name, kind) for name, kind in accepted_pairs() if not made(name).biased]


@functools.cache
def bounded():
    """Those that promise something, apart from the plain estimators themselves."""
    return [
        (name, kind)
        for name, kind in accepted_pairs()
        if math.isfinite(bound(name, kind))
        and not eqx.tree_equal(made(name), made("nocv", entropy=entropy_mode(name)))
    ]


@functools.cache
def truth(kind):
    return by_quadrature(target_2d(TARGET), start(kind))


@functools.cache
def limit():
    """Standard errors allowed, and the number of z-tests in all."""
    means = sum(SEEDS * len(np.atleast_1d(truth(kind).value)) for _, kind in unbiased())
    tests = means + SEEDS * len(bounded())
    return -ndtri(ALARM / (2 * tests)), tests


@eqx.filter_jit
def _samples(estimator, target, q, seeds):
    def learn(state, key):
        return estimator.step(target, q, state, key=key)[1], None

    def of_seed(seed):
        key_warm, key_run = jr.split(jr.key(seed))
        state, _ = jax.lax.scan(learn, estimator.init(target, q), jr.split(key_warm, WARM_UP))

        def one(key):
            estimate, _ = estimator.step(target, q, state, key=key)
            return flat(estimate.grad, estimate.elbo)

        return jax.lax.map(one, jr.split(key_run, REPLICATIONS), batch_size=200)

    return jax.lax.map(of_seed, seeds)


@functools.lru_cache(8)
def samples(name, kind, mode=None):
    """Estimates (seeds, replications, coordinates); the same seeds, and so the same draws, for all."""
    settings = {} if mode is None else {"entropy": mode}
    seeds = 7_000_000 + np.arange(SEEDS)
    return np.asarray(_samples(made(name, **settings), target_2d(TARGET), start(kind), seeds))


def entropy_mode(name):
    """That of the plain estimator to compare with; what chooses as it runs has none of its own."""
    used = type(getattr(made(name), "entropy", None))
    return next((mode for mode, cls in entropy.REGISTRY.items() if used is cls), "sampled")


@pytest.mark.parametrize(("name", "kind"), unbiased(), ids=lambda part: part)
def test_unbiased_over_fresh_seeds(name, kind, tell):
    known, (allowed, tests) = truth(kind), limit()
    z = [excess(found, known.value, slack=known.error) for found in samples(name, kind)]
    worst = float(np.max(z))
    tell(
        f"mean of {name}, {kind}: at most {worst:.2f} standard errors off; {allowed:.2f} allowed over "
        f"{tests:,} tests",
        z_tests=np.size(z),
    )
    assert worst <= allowed


@pytest.mark.parametrize(("name", "kind"), bounded(), ids=lambda part: part)
def test_variance_within_its_promise_over_fresh_seeds(name, kind, tell):
    """Squared distances from the mean, summed over the coordinates and compared draw by draw."""
    own, plain = (
        np.sum((found - np.mean(found, axis=1, keepdims=True)) ** 2, axis=2)
        for found in (
            samples(name, kind)[..., :-1],
            samples("nocv", kind, entropy_mode(name))[..., :-1],
        )
    )
    allowed, tests = limit()
    above = own - bound(name, kind) * plain
    # Where both are the same, rounding of some tens of operations is all that is left.
    rounding = 100 * np.finfo(float).eps * np.mean(plain, axis=1)
    z = [(np.mean(a) - slack) / standard_error(a) for a, slack in zip(above, rounding, strict=True)]
    ratio, worst = float(np.mean(own) / np.mean(plain)), max(z)
    tell(
        f"variance of {name}, {kind}: {ratio:.3f} of the plain estimator's, {bound(name, kind):g} "
        f"promised; {worst:+.2f} standard errors above; {allowed:.2f} allowed over {tests:,} tests",
        z_tests=len(z),
    )
    assert worst <= allowed


def test_there_are_as_many_as_said():
    assert len(unbiased()) > 25
    assert len(bounded()) > 5
