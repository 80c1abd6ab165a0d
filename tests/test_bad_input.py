"""Misuse: the right exception, when things are made, with what was given and what is accepted."""

import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import optax
import pytest
from subjects import target_2d

import quietgrad as qg
from quietgrad.estimators.samplers import Iid

KEY = jr.key(0)


@pytest.fixture(autouse=True)
def _as_users_run_it():
    """The type checker of the test run would refuse wrong types before the package's own checks."""
    jaxtyping.config.update("jaxtyping_disable", True)  # noqa: FBT003
    yield
    jaxtyping.config.update("jaxtyping_disable", False)  # noqa: FBT003


def normal(z):
    return -0.5 * jnp.sum(z**2)


def likelihood(z, data):
    return -0.5 * (data - z[0]) ** 2


def target(dim=2):
    return qg.Target.from_logdensity(normal, dim=dim)


def with_rows(rows=5):
    return qg.Target(normal, likelihood, np.zeros(rows))


def q(dim=2):
    return qg.MeanField(jnp.zeros(dim), jnp.zeros(dim))


def flow():
    return qg.RealNVP.init(2, key=KEY, widths=(2,))


def fit(*args, **settings):
    return qg.fit(*(args or (target(), q())), **{"method": "sgd", "key": KEY, **settings})


def pathwise(**settings):
    return qg.Pathwise(**settings).init(target(), q())


WRONG_VALUES = {
    # Dimensions
    "family too long": (lambda: qg.estimator("nocv").init(target(3), q(2)), ["dim 3", "dim 2", "dim=3"]),
    "fit with a family too short": (lambda: fit(target(3), q(2)), ["dim 3", "dim 2"]),
    "elbo of the wrong dim": (lambda: qg.elbo(target(3), q(2), key=KEY), ["dim 3", "dim 2"]),
    "lppd of the wrong dim": (
        lambda: qg.lppd(qg.Target(normal, likelihood, np.zeros(5), dim=3), q(2), key=KEY),
        ["dim 3", "dim 2"],
    ),
    "density that needs another dim": (
        lambda: qg.Target.from_logdensity(lambda z: z @ jnp.ones(3), dim=2),
        ["the log density failed", "dim 2", "Check the dim"],
    ),
    "dim zero": (lambda: target(0), ["dim", "at least 1", "0"]),
    "fraction of a dim": (lambda: qg.MeanField.init(2.5, key=KEY), ["dim", "whole number", "2.5"]),
    "dim missing": (lambda: qg.Target.from_logdensity(normal), ["dim=5", "example=pytree"]),
    "dim and example": (
        lambda: qg.Target.from_logdensity(normal, 2, example=jnp.zeros(2)),
        ["dim", "example", "not both"],
    ),
    "points of the wrong length": (lambda: q(2).log_prob(jnp.zeros((4, 3))), ["2", "(4, 3)"]),
    "rank zero": (lambda: qg.LowRank.init(2, rank=0, key=KEY), ["rank", "at least 1", "0"]),
    # Densities
    "density is a vector": (
        lambda: qg.Target.from_logdensity(lambda z: z, dim=3),
        ["the log density", "scalar", "float64[3]"],
    ),
    "density is whole": (
        lambda: qg.Target.from_logdensity(lambda z: jnp.sum(z > 0), dim=3),
        ["the log density", "real", "int64[]"],
    ),
    "density is None": (lambda: qg.Target.from_logdensity(lambda z: None, dim=3), ["NoneType"]),
    "density in numpy": (
        lambda: qg.Target.from_logdensity(lambda z: np.sum(np.asarray(z)), dim=3),
        ["the log density failed", "jax.numpy"],
    ),
    "likelihood is summed": (
        lambda: qg.Target(normal, lambda z, x: jnp.sum(x), np.zeros(5), dim=2),
        ["log_likelihood", "one real value per row", "(5,)", "float64[]"],
    ),
    "likelihood is checked with the family": (
        lambda: qg.estimator("nocv").init(qg.Target(normal, lambda z, x: z, np.zeros(5)), q()),
        ["log_likelihood", "(5,)", "float64[2]"],
    ),
    # Data
    "NaN data": (
        lambda: qg.Target(normal, likelihood, np.array([0.0, 1.0, np.nan])),
        ["data", "1 NaN", "row 2"],
    ),
    "infinite data in a tree": (
        lambda: qg.Target(normal, likelihood, {"x": np.zeros((2, 2)), "y": np.array([np.inf, 0])}),
        ["['y']", "infinite", "row 0"],
    ),
    "ragged data": (
        lambda: qg.Target(normal, likelihood, (np.zeros(2), np.zeros(3))),
        ["leading axis", "(2,)", "(3,)"],
    ),
    "no rows": (lambda: qg.Target(normal, likelihood, np.zeros((0, 2))), ["non-empty", "(0,)"]),
    "data without a likelihood": (
        lambda: qg.Target(normal, data=np.zeros(3)),
        ["data", "without log_likelihood"],
    ),
    "likelihood without data": (lambda: qg.Target(normal, likelihood), ["without data"]),
    "size below the rows": (
        lambda: qg.Target(normal, likelihood, np.zeros(5), size=4),
        ["size", "at least 5", "4"],
    ),
    "lppd without rows": (lambda: qg.lppd(target(), q(), key=KEY), ["lppd", "no data"]),
    # Batches
    "batch larger than the rows": (
        lambda: fit(with_rows(5), q(), batch_size=6),
        ["batch_size", "6", "at most 5"],
    ),
    "batch of none": (lambda: fit(with_rows(5), q(), batch_size=0), ["batch_size", "at least 1", "0"]),
    "batch without data": (lambda: fit(batch_size=2), ["batch_size", "no data"]),
    "variance of too large a batch": (
        lambda: qg.gradient_variance(with_rows(5), q(), batch_size=6, key=KEY),
        ["batch_size", "6", "at most 5"],
    ),
    # Draws, steps, repeats
    "no draws": (lambda: qg.estimator("nocv", draws=0), ["draws", "at least 1", "0"]),
    "negative draws": (lambda: qg.Pathwise(draws=-3), ["draws", "at least 1", "-3"]),
    "fraction of draws": (lambda: qg.Pathwise(draws=2.5), ["draws", "whole number", "2.5"]),
    "draws in words": (lambda: qg.Pathwise(draws="ten"), ["draws", "whole number", "'ten'"]),
    "true draws": (lambda: qg.Pathwise(draws=True), ["draws", "whole number", "True"]),
    "sample of none": (lambda: q().sample(KEY, 0), ["draws", "at least 1", "0"]),
    "elbo from one draw": (lambda: qg.elbo(target(), q(), draws=1, key=KEY), ["draws", "at least 2"]),
    "odd draws for pairs": (
        lambda: pathwise(sampler="antithetic", draws=5),
        ["antithetic", "even", "5"],
    ),
    "no steps": (lambda: qg.Sgd(steps=0), ["steps", "at least 1", "0"]),
    "no evaluations": (lambda: qg.Sgd(evaluate_every=0), ["evaluate_every", "at least 1", "0"]),
    "too few repeats": (
        lambda: qg.gradient_variance(target(), q(), repeats=5, key=KEY),
        ["repeats", "at least 20", "5"],
    ),
    "closed entropy of a flow": (
        lambda: qg.estimator("nocv", entropy="closed").init(target(), flow()),
        ["RealNVP", "no closed-form entropy", "'sampled'"],
    ),
    "degrees of freedom": (lambda: qg.StudentT(df=0.0), ["df", "positive", "0.0"]),
    # Names
    "unknown estimator": (lambda: qg.estimator("novc"), ["'novc'", "nocv", "Did you mean 'nocv'?"]),
    "unknown estimator in a method": (lambda: qg.Sgd("adam"), ["'adam'", "nocv", "stl"]),
    "unknown setting": (
        lambda: qg.estimator("nocv", draw=10),
        ["'draw'", "'nocv'", "Did you mean 'draws'?"],
    ),
    "unknown sampler": (lambda: qg.Pathwise(sampler="sobol"), ["sampler", "'sobol'", "iid"]),
    "unknown weights": (lambda: qg.Pathwise(weights="even"), ["weights", "'even'", "uniform"]),
    "unknown entropy": (lambda: qg.Pathwise(entropy="open"), ["entropy", "'open'", "closed"]),
    "unknown surrogate": (lambda: qg.Pathwise(surrogate="cubic"), ["surrogate", "'cubic'"]),
    "unknown method": (lambda: fit(method="adam"), ["method", "'adam'", "sgd"]),
    "unknown family": (lambda: fit(target(), "mean field"), ["family", "mean-field"]),
    "family by name without a dim": (
        lambda: fit(qg.Target(normal), "mean-field"),
        ["does not say its dim", "dim=..."],
    ),
    "no seconds": (lambda: fit(seconds=0), ["seconds", "positive", "0"]),
}

WRONG_TYPES = {
    "a pytree as dim": (
        lambda: qg.Target.from_logdensity(normal, {"slopes": jnp.zeros(3)}),
        ["dim", "dict", "example="],
    ),
    "target is a function": (lambda: fit(normal, q()), ["target", "Target", "function"]),
    "family is a class": (
        lambda: fit(target(), qg.MeanField),
        ["family", "AbstractFamily", "MeanField"],
    ),
    "method is a number": (lambda: fit(method=3), ["method", "sgd", "int"]),
    "method is a class": (lambda: fit(method=qg.Auto), ["method", "instance", "Auto"]),
    "estimator is a number": (lambda: qg.Sgd(3), ["estimator", "nocv", "int"]),
    "estimator is a class": (lambda: qg.Sgd(qg.Pathwise), ["estimator", "Pathwise"]),
    "estimator of the variance": (
        lambda: qg.gradient_variance(target(), q(), 3, key=KEY),
        ["estimator", "nocv", "int"],
    ),
    "optimizer is a name": (lambda: qg.Sgd(optimizer="adam"), ["optimizer", "optax", "str"]),
    "optimizer is not called": (
        lambda: qg.Sgd(optimizer=optax.adam),
        ["optimizer", "optax", "function"],
    ),
    "density is an array": (lambda: qg.Target(jnp.zeros(2)), ["log_prior", "function", "Array"]),
    "likelihood is a number": (lambda: qg.Target(normal, 3), ["log_likelihood", "function", "int"]),
    "sampler is a number": (lambda: qg.Pathwise(sampler=3), ["sampler", "antithetic", "int"]),
    "sampler is a class": (lambda: qg.Pathwise(sampler=Iid), ["sampler", "instance", "Iid"]),
    "elbo of a function": (lambda: qg.elbo(normal, q(), key=KEY), ["target", "Target", "function"]),
    "elbo of a name": (lambda: qg.elbo(target(), "q", key=KEY), ["q", "AbstractFamily", "str"]),
    # Keys
    "key is a number": (lambda: fit(key=0), ["key", "jax.random.key(seed)", "int"]),
    "key is None": (lambda: fit(key=None), ["key", "jax.random.key(seed)", "NoneType"]),
    "key of the elbo is a number": (
        lambda: qg.elbo(target(), q(), key=0),
        ["key", "Got 0"],
    ),
    "key of the family is a number": (
        lambda: qg.MeanField.init(2, key=0),
        ["key", "Got 0"],
    ),
    "key missing in fit": (lambda: qg.fit(target(), q()), ["key"]),
    "key missing in init": (lambda: qg.MeanField.init(2), ["key"]),
    "key missing in elbo": (lambda: qg.elbo(target(), q()), ["key"]),
    "key missing in step": (lambda: qg.Pathwise().step(target_2d("curved"), q(), None), ["key"]),
}


def check(call, exception, fragments):
    with pytest.raises(exception) as caught:
        call()
    missing = [part for part in fragments if part not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_wrong_value(name):
    check(WRONG_VALUES[name][0], ValueError, WRONG_VALUES[name][1])


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_type(name):
    check(WRONG_TYPES[name][0], TypeError, WRONG_TYPES[name][1])
