"""Likelihoods of the rows that a NumPyro model subsamples: of each row by itself."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.stats

import quietgrad as qg

Y = np.array([0.3, -1.0, 2.0, 0.5])


def test_rows_of_a_subsampled_plate_count_once_by_themselves():
    """In the density they stand for all rows of the plate."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 20, subsample_size=len(y)):
            numpyro.sample("y", dist.Normal(mu, 2.0), obs=y)

    target = qg.Target.from_numpyro(model, jnp.asarray(Y))
    assert target.model is not None
    found = target.model.log_likelihoods({"mu": jnp.asarray(0.7)})["y"]
    rows = scipy.stats.norm.logpdf(Y, 0.7, 2.0)
    np.testing.assert_allclose(found, rows, rtol=1e-6)
    expected = scipy.stats.norm.logpdf(0.7) + 20 / 4 * np.sum(rows)
    np.testing.assert_allclose(target.log_density(jnp.array([0.7])), expected, rtol=1e-6)
