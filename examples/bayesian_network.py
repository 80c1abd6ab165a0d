"""A Bayesian neural network on minibatches: points are the network's own pytree."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import quietgrad as qg

# %% A thousand noisy values of a curve.
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-3, 3, (1000, 1)), axis=0)
y = np.sin(2 * x[:, 0]) + 0.1 * x[:, 0] ** 2 + 0.2 * rng.normal(size=1000)

# %% An equinox network and a noise level are one point.
network = eqx.nn.MLP(1, "scalar", width_size=10, depth=1, activation=jnp.tanh, key=jax.random.key(0))
weights, structure = eqx.partition(network, eqx.is_inexact_array)


def log_prior(point):
    squares = jax.tree.map(lambda w: jnp.sum(w**2), point["weights"])
    return -0.5 * sum(jax.tree.leaves(squares)) - 0.5 * (point["log_noise"] + 1) ** 2


def log_likelihood(point, data):
    x, y = data
    predicted = jax.vmap(eqx.combine(point["weights"], structure))(x)
    return -0.5 * ((y - predicted) * jnp.exp(-point["log_noise"])) ** 2 - point["log_noise"]


example = {"weights": weights, "log_noise": jnp.array(0.0)}
target = qg.Target(log_prior, log_likelihood, (x, y), example=example)

# %% A hundred rows a step; `auto` sees to the rest.
result = qg.fit(target, "mean-field", batch_size=100, seconds=60, key=jax.random.key(1))
print(result)

# %% The curve, its uncertainty, and the noise (0.2 in truth).
draws = result.sample(jax.random.key(2), 200)
grid = jnp.linspace(-3, 3, 7)[:, None]
curves = jax.vmap(lambda w: jax.vmap(eqx.combine(w, structure))(grid))(draws["weights"])
for at, mean, std in zip(grid[:, 0], np.mean(curves, axis=0), np.std(curves, axis=0), strict=True):
    truth = np.sin(2 * at) + 0.1 * at**2
    print(f"x = {at:+.0f}: {mean:+.2f} ± {std:.2f}, in truth {truth:+.2f}")
print(f"noise: {np.mean(np.exp(draws['log_noise'])):.3f}")
