"""A Gaussian-process regression, and all that is asked of its fit; `test_gaussian_process` runs it.

Two Cholesky factors for each draw in one program: the log density's and the likelihood's.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import quietgrad as qg
from quietgrad.adapters.arviz import to_arviz


def model(x, y):
    """Squared-exponential kernel with noise; three unknown scales with wide priors."""
    variance = numpyro.sample("kernel_var", dist.LogNormal(0.0, 10.0))
    noise = numpyro.sample("kernel_noise", dist.LogNormal(0.0, 10.0))
    length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 10.0))
    apart = (x[:, None] - x[None, :]) / length
    kernel = variance * jnp.exp(-0.5 * apart**2) + (noise + 1e-6) * jnp.eye(x.size)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.size), covariance_matrix=kernel), obs=y)


def main(precision: str, repeats: int) -> None:
    """Fit, diagnose, then draws, predictions and ArviZ's form `repeats` times."""
    jax.config.update("jax_enable_x64", precision == "float64")
    x = np.linspace(-1, 1, 25)
    curve = x + 0.2 * x**3 + 0.5 * (0.5 + x) ** 2 * np.sin(4 * x)
    y = curve + 0.15 * np.random.default_rng(0).standard_normal(25)
    target = qg.Target.from_numpyro(model, jnp.asarray(x), jnp.asarray((y - y.mean()) / y.std()))
    result = qg.fit(target, key=jax.random.key(0), progress=False)
    result.diagnose()
    result.to_arviz(corrected=True)
    for key in jax.random.split(jax.random.key(1), 3):
        drawn = result.sample(key), result.predictive(key)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(drawn))
    for key in jax.random.split(jax.random.key(2), repeats):
        to_arviz(target, result.q, key, 1000)
    print("returned", result.elbo)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
