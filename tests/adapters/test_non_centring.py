"""Non-centred forms that are found automatically: which sites, the density, and draws by their names."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import quietgrad as qg
from quietgrad.adapters.numpyro import non_centred
from quietgrad.adapters.numpyro.non_centring import scaled_by_sites

ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def schools(error, effect):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(effect)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=effect)


def by_hand(error, effect):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(effect)):
        e = numpyro.sample("theta_decentered", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * e)
        numpyro.sample("y", dist.Normal(theta, error), obs=effect)


def others():
    """Normal sites of every kind, two of which have a scale that is made of sites."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    numpyro.sample("of_mean", dist.Normal(scale, 2.0))
    numpyro.sample("through", dist.Normal(0.0, jnp.sqrt(1 + scale**2)).expand([3]).to_event(1))
    numpyro.sample("tail", dist.StudentT(3.0, 0.0, scale))
    with numpyro.plate("rows", 4):
        numpyro.sample("masked", dist.Normal(0.0, scale).mask(jnp.arange(4) > 1))
    numpyro.sample("seen", dist.Normal(0.0, scale), obs=1.0)


def test_sites_whose_scale_is_made_of_latent_sites_are_found():
    assert scaled_by_sites(schools, (ERROR, EFFECT), {}) == ["theta"]
    assert sorted(scaled_by_sites(others, (), {})) == ["masked", "through"]


def test_the_density_is_that_of_the_form_by_hand():
    found = qg.Target.from_numpyro(non_centred(schools), ERROR, EFFECT)
    known = qg.Target.from_numpyro(by_hand, ERROR, EFFECT)
    assert found.model is not None
    assert known.model is not None
    assert found.model.variables() == known.model.variables()
    z = jr.normal(jr.key(0), (5, 10))
    np.testing.assert_allclose(
        jax.vmap(found.log_density)(z), jax.vmap(known.log_density)(z), rtol=1e-12
    )


def test_draws_come_back_by_the_names_of_the_model():
    result = qg.fit(
        qg.Target.from_numpyro(non_centred(schools), ERROR, EFFECT), "full-rank", key=jr.key(0)
    )
    draws = result.posterior(jr.key(1), 2000).points
    assert np.shape(draws["theta"]) == (2000, 8)
    expected = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_decentered"]
    np.testing.assert_allclose(draws["theta"], expected, rtol=1e-6)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="NumPyro model"):
        non_centred("schools")
