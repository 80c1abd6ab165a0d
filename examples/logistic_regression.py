"""Logistic regression: a log prior, a log likelihood of each row, and a verdict on the fit."""

import jax
import jax.numpy as jnp
import numpy as np

import quietgrad as qg

# %% Two hundred patients, three measurements, one outcome.
rng = np.random.default_rng(0)
x = np.column_stack([np.ones(200), rng.normal(size=(200, 3))])
truth = np.array([-0.5, 1.0, -2.0, 0.0])
y = (rng.random(200) < 1 / (1 + np.exp(-x @ truth))).astype(float)


# %% The model: a point z is the vector of coefficients.
def log_prior(z):
    return -0.5 * jnp.sum(z**2) / 10**2


def log_likelihood(z, data):
    """One value per row, which is what minibatches and predictive checks need."""
    x, y = data
    logit = x @ z
    return y * logit - jnp.logaddexp(logit, 0.0)


target = qg.Target(log_prior, log_likelihood, (x, y), dim=4)

# %% The fit: no step size, no number of steps.
result = qg.fit(target, "full-rank", key=jax.random.key(0))
print(result.explain())

# %% Whether to believe it.
print(result.diagnose())

# %% What was learned.
draws = result.sample(jax.random.key(1), 4000)
for name, column, true in zip(("intercept", "a", "b", "c"), draws.T, truth, strict=True):
    low, high = np.quantile(column, [0.05, 0.95])
    print(f"{name:10} {np.mean(column):+.2f}   90 % in [{low:+.2f}, {high:+.2f}]   truth {true:+.1f}")
