"""Targets of NumPyro models have NumPyro's own density, names and shapes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.funsor import config_enumerate, enum
from numpyro.handlers import seed
from numpyro.infer import Predictive, log_likelihood
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import constrain_fn, potential_energy
from numpyro_models import CASES, EFFECT, ERROR, LABEL, X, Y, logistic, standardised

import quietgrad as qg

NONCENTRED = {"theta": LocScaleReparam(0.0)}


def numpyros_own(case):
    """NumPyro's density, draws and pointwise likelihood from unconstrained values, on all data."""
    kwargs = case.kwargs if case.whole is None else case.whole
    model, plain = case.model, case.model
    if case.enumerate_at is not None:
        model = enum(config_enumerate(model), case.enumerate_at)
        plain = seed(case.model, 0)

    def density(point):
        return -potential_energy(model, case.args, kwargs, point, enum=case.enumerate_at is not None)

    def draws(point):
        return constrain_fn(plain, case.args, kwargs, point, return_deterministic=True)

    def pointwise(point):
        draw = {name: value[None] for name, value in draws(point).items()}
        return log_likelihood(plain, draw, *case.args, **kwargs)

    return density, draws, pointwise


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", CASES)
def test_density_gradient_and_draws_are_numpyros(name):
    case = CASES[name]
    target = qg.Target.from_numpyro(case.model, *case.args, **case.kwargs)
    assert (target.rows, target.size) == (case.rows, case.rows)
    density, draws, pointwise = numpyros_own(case)
    chosen = jnp.array([7, 0, 3])

    @eqx.filter_jit
    def both(target, z):
        ours = jax.value_and_grad(target.log_density)(z)
        theirs = jax.value_and_grad(lambda z: density(target.point(z)))(z)
        rows = None
        if target.rows:
            some = target.batch(chosen).log_likelihoods(z)
            rows = target.log_likelihoods(z), some, pointwise(target.point(z))
        return ours, theirs, target.constrain(z), draws(target.point(z)), rows

    z = jnp.asarray(0.7 * np.random.default_rng(1).normal(size=target.dim))
    ours, theirs, point, expected, rows = both(target, z)
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.max(np.abs(wanted)))
    assert point.keys() == expected.keys()
    for site, value in expected.items():
        np.testing.assert_allclose(point[site], value, rtol=1e-12)
    if rows is not None:
        every, some, by_site = rows
        np.testing.assert_allclose(every, by_site["y"][0], rtol=1e-9)
        np.testing.assert_allclose(some, by_site["y"][0][chosen], rtol=1e-9)


def test_rows_that_need_other_rows_are_no_rows():
    """Standardised inputs and a series: a minibatch would be another model."""
    assert qg.Target.from_numpyro(standardised, X[:, 0], Y).rows == 0
    assert qg.Target.from_numpyro(CASES["time-series"].model, *CASES["time-series"].args).rows == 0


def test_a_batch_as_argument_stands_for_the_plate():
    def model(y, size):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("data", size, subsample_size=len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    target = qg.Target.from_numpyro(model, Y, 1200)
    assert (target.rows, target.size) == (12, 1200)
    expected = jnp.sum(dist.Normal(0.3, 1.0).log_prob(Y)) * 100 + dist.Normal(0, 1).log_prob(0.3)
    np.testing.assert_allclose(target.log_density(jnp.array([0.3])), expected, rtol=1e-12)


def test_new_data_of_the_same_shape_need_no_compilation(key):
    """Data are arguments of the compiled programs, also where a handler holds them."""

    def model(error):
        mean = numpyro.sample("mean", dist.Normal(0, 50))
        with numpyro.plate("schools", 8):
            theta = numpyro.sample("theta", dist.Normal(mean, 5.0))
            numpyro.sample("effect", dist.Normal(theta, error))

    def fit(shift):
        observed = handlers.condition(model, data={"effect": EFFECT + shift})
        target = qg.Target.from_numpyro(handlers.reparam(observed, config=NONCENTRED), ERROR)
        return qg.fit(target, method="saa", key=key)

    first, second = fit(0.0), fit(100.0)
    assert first.programs > 0
    assert second.programs == 0
    # The posterior of the mean has a standard deviation of about 5, and the prior hardly pulls.
    gap = np.mean(second.sample(key)["mean"]) - np.mean(first.sample(key)["mean"])
    assert gap > 80


@pytest.mark.slow
def test_minibatch_fits_agree_with_the_full_data(key):
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = (x @ [1.0, -1.0, 0.0] + np.random.default_rng(1).logistic(size=200) > 0).astype(float)
    target = qg.Target.from_numpyro(logistic, x, y, batch=20)
    method = qg.Sgd("quiet", steps=600)
    whole = qg.fit(target, method=method, key=key)
    batched = qg.fit(target, method=method, batch_size=20, key=key)
    # Adam's steps on batches of a tenth leave a nat or two; a wrong scale of the rows leaves tens.
    assert batched.elbo == pytest.approx(whole.elbo, abs=5)


def test_results_speak_the_models_language(key):
    target = qg.Target.from_numpyro(logistic, X, LABEL, batch=4)
    result = qg.fit(target, method="saa", key=key)
    draws = result.sample(key, 50)
    assert {name: x.shape for name, x in draws.items()} == {
        "w": (50, 3),
        "b": (50,),
        "logits": (50, 12),
    }
    logits = draws["b"][:, None] + draws["w"] @ X.T
    np.testing.assert_allclose(draws["logits"], logits, rtol=1e-9)
    predicted = result.predictive(key, draws=50)
    assert predicted["y"].shape == (50, 12)
    new = result.predictive(key, 2 * X[:5], draws=50)
    assert new["y"].shape == (50, 5)
    expected = Predictive(logistic, result.sample(jr.split(key)[0], 50))(jr.split(key)[1], 2 * X[:5])
    np.testing.assert_array_equal(new["y"], expected["y"])


def refused(model, *args):
    with pytest.raises((ValueError, TypeError)) as caught:
        qg.Target.from_numpyro(model, *args)
    return str(caught.value)


def test_what_has_no_density_is_refused_with_a_sentence():
    def counted(y):
        n = numpyro.sample("n", dist.Poisson(3.0))
        numpyro.sample("p", dist.Beta(1, 1))
        numpyro.sample("y", dist.Normal(n, 1.0), obs=y)

    def pointed():
        numpyro.sample("x", dist.Normal(0, 1))
        numpyro.sample("point", dist.Delta(1.0))

    def learned():
        numpyro.sample("x", dist.Normal(numpyro.param("theta", 0.5), 1.0))

    assert "'n' is discrete (Poisson)" in refused(counted, 1.0)
    assert "'point' has a delta distribution" in refused(pointed)
    assert "no latent site" in refused(lambda: numpyro.sample("y", dist.Normal(0, 1), obs=1.0))
    fixed = qg.Target.from_numpyro(handlers.substitute(learned, data={"theta": 2.0}))
    np.testing.assert_allclose(jax.grad(fixed.log_density)(jnp.array([2.0])), 0.0)


def test_a_plain_target_predicts_nothing(key):
    result = qg.fit(qg.Target.from_logdensity(lambda z: -z @ z, 2), method="saa", key=key)
    with pytest.raises(ValueError, match="make it with Target.from_numpyro"):
        result.predictive(key)


GLOBAL = np.ones(3)


def reads_a_global():
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=GLOBAL)


def test_data_that_a_model_reads_by_name_may_change(key):
    """As in a notebook: the second fit must not be that of the first data."""
    for data, expected in ((np.ones(3), 0.75), (-np.ones(3), -0.75)):
        globals()["GLOBAL"] = data
        result = qg.fit(qg.Target.from_numpyro(reads_a_global), method="saa", key=key)
        # Three observations of 1 against a prior of the same precision.
        np.testing.assert_allclose(result.q.loc, expected, atol=1e-3)


class Holder:
    def __init__(self):
        self.y, self.x = np.ones(3), np.ones(3)

    def model(self):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.deterministic("shifted", mean + jnp.sum(self.x))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=self.y)


def test_data_that_a_model_holds_may_change_in_place(key):
    """Each target has the data of its time: its fit, its variables, likelihoods and observations."""
    holder = Holder()
    results = []
    for sign in (1.0, -1.0):
        holder.y[:], holder.x[:] = sign, 10 * sign
        results.append(qg.fit(qg.Target.from_numpyro(holder.model), method="saa", key=key))
    holder.y[:], holder.x[:] = 100.0, 100.0
    assert results[1].programs == 0
    for sign, result in zip((1.0, -1.0), results, strict=True):
        np.testing.assert_allclose(result.q.loc, 0.75 * sign, atol=1e-3)
        drawn = result.sample(key, 5)
        np.testing.assert_allclose(drawn["shifted"] - drawn["mean"], 30 * sign, rtol=1e-6)
        tree = result.to_arviz(20)
        np.testing.assert_array_equal(tree["observed_data"]["y"], sign)
        means = np.asarray(tree["posterior"]["mean"])[0]
        expected = -0.5 * (sign - means[:, None]) ** 2 - 0.5 * np.log(2 * np.pi) + np.zeros(3)
        np.testing.assert_allclose(tree["log_likelihood"]["y"][0], expected, rtol=1e-6)


@pytest.mark.parametrize("rows", [3, 1000])
def test_arguments_are_copied(rows, key):
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    y = np.ones(rows)
    target = qg.Target.from_numpyro(model, y)
    y[:] = 100.0
    result = qg.fit(target, method="saa", key=key)
    np.testing.assert_allclose(result.q.loc, rows / (rows + 1), atol=1e-3)
    np.testing.assert_array_equal(result.to_arviz(5)["observed_data"]["y"], 1.0)
