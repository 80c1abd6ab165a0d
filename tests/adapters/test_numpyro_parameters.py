"""`numpyro.param` sites: fitted beside q, against closed forms and NumPyro's own SVI objective."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

import quietgrad as qg

ROWS = 40
Y = 3.0 + 2.0 * np.random.default_rng(0).normal(size=ROWS)


def noise(y=None):
    """y_i ~ N(m, s^2 + 1) once z_i ~ N(m, s^2) is integrated out: m and s^2 have a closed form."""
    m = numpyro.param("m", 0.0)
    s = numpyro.param("s", 1.0, constraint=constraints.positive)
    with numpyro.plate("rows", ROWS):
        z = numpyro.sample("z", dist.Normal(m, s))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def regression(x, y=None):
    """One global slope with a prior, an intercept without: rows are separate."""
    a: Any = numpyro.param("a", lambda key: jr.normal(key, (2,)))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(a[0] + b * x, 1.0), obs=y)


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_maximise_the_evidence(dtype, key):
    y = jnp.asarray(Y, dtype)
    with jax.enable_x64(dtype == "float64"):
        target = qg.Target.from_numpyro(noise, y)
        assert target.dim == ROWS
        result = qg.fit(target, "mean-field", progress=False, key=key)
    # The mean-field family holds the posterior, so the ELBO's maximum is that of the evidence. A fit may
    # stop `gain` = 0.5 nats below it: within sqrt(2 * 0.5) sds of the estimates.
    assert set(result.hyperparameters) == {"m", "s"}
    assert abs(result.hyperparameters["m"] - Y.mean()) < Y.std() / np.sqrt(ROWS)
    variance = Y.var() - 1
    assert abs(result.hyperparameters["s"] ** 2 - variance) < Y.var() * np.sqrt(2 / ROWS)
    drawn = result.sample(key, 500)
    assert set(drawn) == {"z"}
    shrunk = Y.mean() + variance / Y.var() * (Y - Y.mean())
    error = np.sqrt(variance / Y.var())
    assert np.sqrt(np.mean((np.mean(drawn["z"], axis=0) - shrunk) ** 2)) < error / 2


def test_the_target_after_the_fit_is_the_model_at_its_parameters(key):
    x = np.linspace(-1, 1, ROWS)
    target = qg.Target.from_numpyro(regression, x, y=jnp.asarray(Y))
    assert target.rows == ROWS
    result = qg.fit(target, "full-rank", progress=False, key=key)
    a = np.asarray(result.hyperparameters["a"])
    assert abs(a[0] - Y.mean()) < 1 / np.sqrt(ROWS)
    fixed = qg.Target.from_numpyro(
        handlers.substitute(regression, data={"a": jnp.asarray(a)}), x, y=jnp.asarray(Y)
    )
    z = jnp.array([0.7])
    np.testing.assert_allclose(result.target.log_density(z), fixed.log_density(z), rtol=1e-9)
    seen = result.predictive(key, draws=400)["y"]
    assert abs(np.mean(seen) - Y.mean()) < 5 * np.sqrt(2.0 / ROWS)
    assert str(result.diagnose(seconds=600).verdict) == "trust"


def test_batches_fit_parameters_too(key):
    x = np.linspace(-1, 1, ROWS)
    target = qg.Target.from_numpyro(regression, x, y=jnp.asarray(Y))
    result = qg.fit(target, batch_size=10, progress=False, method=qg.Auto(steps=3000), key=key)
    assert abs(result.hyperparameters["a"][0] - Y.mean()) < 3 / np.sqrt(ROWS)


def test_a_module_of_many_arrays_is_one_parameter(key):
    """As `flax_module` registers a network: a pytree under one name."""

    def network(x, y=None):
        w: Any = numpyro.param("net$params", {"in": jnp.ones(3), "out": {"w": jnp.zeros(3)}})
        std = numpyro.sample("std", dist.HalfNormal(1.0))
        mean = jnp.tanh(x[:, None] * w["in"][None]) @ w["out"]["w"]
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(mean, std), obs=y)

    x = np.linspace(-2, 2, ROWS)
    y = jnp.asarray(np.tanh(2 * x) + 0.1 * np.random.default_rng(1).normal(size=ROWS))
    result = qg.fit(qg.Target.from_numpyro(network, x, y=y), progress=False, key=key)
    found = result.hyperparameters["net$params"]
    assert found["out"]["w"].shape == (3,)
    fitted = np.tanh(x[:, None] * np.asarray(found["in"])) @ np.asarray(found["out"]["w"])
    assert np.sqrt(np.mean((fitted - np.asarray(y)) ** 2)) < 0.2


def test_what_cannot_be_fitted_is_said(key):
    def counted(y):
        k = numpyro.param("k", 3)
        numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal(0.0, 1.0)), k), obs=y)

    with pytest.raises(ValueError, match="'k' are whole numbers"):
        qg.Target.from_numpyro(counted, 1.0)
    target = qg.Target.from_numpyro(noise, jnp.asarray(Y))
    with pytest.raises(ValueError, match="name a family"):
        qg.fit(target, "auto", key=key)
