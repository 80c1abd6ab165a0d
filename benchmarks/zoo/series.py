"""Time series: autoregression, a recursion that overflows outside its stable region, hidden states."""

import jax
import jax.numpy as jnp
import numpy as np

import quietgrad as qg

from .densities import log_half_cauchy, log_half_normal, normal, normals
from .model import Model, Moments, density


def autoregression() -> Model:
    """AR(2): z = constant, two coefficients, log sd."""
    rng = np.random.default_rng(801)
    y = np.zeros(202)
    for t in range(2, 202):
        y[t] = 0.5 + 1.3 * y[t - 1] - 0.5 * y[t - 2] + 0.4 * rng.normal()
    target = qg.Target(
        lambda z: normals(z[:3], 0.0, 2.0) + log_half_normal(z[3], 1.0),
        lambda z, d: normal(d[0], z[0] + z[1] * d[1] + z[2] * d[2], jnp.exp(z[3])),
        (y[2:], y[1:-1], y[:-2]),
        dim=4,
    )
    return Model("AR(2)", target)


def moving_average() -> Model:
    """ARMA(1, 1): each error needs the one before, and they grow as |θ|^t where |θ| > 1.

    z = mean, φ, θ, log sd.
    """
    rng = np.random.default_rng(802)
    noise, y = 0.5 * rng.normal(size=301), np.zeros(301)
    for t in range(1, 301):
        y[t] = 0.3 + 0.6 * y[t - 1] + 0.5 * noise[t - 1] + noise[t]

    def log_density(z):
        mean, phi, theta, log_std = z
        first = y[0] - mean - phi * mean

        def step(before, pair):
            now = pair[1] - mean - phi * pair[0] - theta * before
            return now, now

        _, errors = jax.lax.scan(step, first, jnp.column_stack([y[:-1], y[1:]]))
        errors = jnp.concatenate([first[None], errors])
        prior = normal(mean, 0.0, 10.0) + normals(z[1:3], 0.0, 2.0) + log_half_cauchy(log_std, 2.5)
        return prior + normals(errors, 0.0, jnp.exp(log_std))

    start = np.array([0.3, 0.6, 0.5, -0.7])
    return Model("ARMA(1, 1), errors that overflow", density(log_density, 4), start=start)


def growth() -> Model:
    """A population x' = x + r x (1 - x / K), which explodes where r is large.

    z = log r, log K, log of the first size, log sd of the errors.
    """
    rng = np.random.default_rng(803)
    size, path = 5.0, []
    for _ in range(40):
        path.append(size)
        size = size + 0.3 * size * (1 - size / 100.0)
    y = np.array(path) + 4.0 * rng.normal(size=40)

    def log_density(z):
        rate, limit = jnp.exp(z[0]), jnp.exp(z[1])
        _, sizes = jax.lax.scan(
            lambda x, _: (x + rate * x * (1 - x / limit), x), jnp.exp(z[2]), length=40
        )
        prior = normal(z[0], -1.0, 1.0) + normal(z[1], 4.0, 1.0) + normal(z[2], 1.0, 1.0)
        prior += log_half_normal(z[3], 10.0)
        return prior + normals(y, sizes, jnp.exp(z[3]))

    start = np.array([-1.2, 4.6, 1.6, 1.4])
    return Model("growth that explodes", density(log_density, 4), start=start)


def local_level() -> Model:
    """A hidden random walk with both scales unknown: z = log sd of steps, log sd of noise, 60 levels."""
    rng = np.random.default_rng(804)
    level = 10 + np.cumsum(0.6 * rng.normal(size=60))
    y = level + 0.5 * rng.normal(size=60)

    def log_density(z):
        step, noise, level = jnp.exp(z[0]), jnp.exp(z[1]), z[2:]
        prior = log_half_normal(z[0], 1.0) + log_half_normal(z[1], 1.0)
        prior += normal(level[0], 10.0, 5.0) + normals(jnp.diff(level), 0.0, step)
        return prior + normals(y, level, noise)

    return Model(
        "local level, hidden states", density(log_density, 62), exact=_hidden_level(y, 10.0, 5.0)
    )


def _hidden_level(y: np.ndarray, mean: float, std: float) -> Moments:
    """Moments of the local level: given both scales the levels are Gaussian, the scales are on a grid.

    Priors: the first level N(mean, std²), scales half-normal with sd 1; z has logs of the scales.
    """
    walk = np.diff(np.eye(y.size), axis=0)
    first = np.zeros(y.size)
    first[0] = 1.0
    # A posterior sd of these is above the step of the grid, so that sums are integrals.
    log_noise = np.linspace(-8.0, 2.0, 51)
    weights, points, spreads = [], [], []
    for log_step in log_noise:
        precision = walk.T @ walk * np.exp(-2 * log_step) + np.outer(first, first) / std**2
        precision = precision + np.eye(y.size) * np.exp(-2 * log_noise)[:, None, None]
        linear = y * np.exp(-2 * log_noise)[:, None] + first * mean / std**2
        covariance = np.linalg.inv(precision)
        level = np.einsum("nij,nj->ni", covariance, linear)
        # log p(y, scales): the joint density at the levels' mean, over their density there.
        height = -0.5 * np.sum((level @ walk.T) ** 2, axis=1) * np.exp(-2 * log_step)
        height += -0.5 * ((level[:, 0] - mean) / std) ** 2
        height += -0.5 * np.sum((y - level) ** 2, axis=1) * np.exp(-2 * log_noise)
        height += -0.5 * np.linalg.slogdet(precision)[1]
        # From the densities of steps and noise, and from logarithms as coordinates: minus and plus one.
        height += (2 - y.size) * log_step + (1 - y.size) * log_noise
        weights.append(height - 0.5 * (np.exp(2 * log_step) + np.exp(2 * log_noise)))
        points.append(np.column_stack([np.full_like(log_noise, log_step), log_noise, level]))
        spreads.append(np.pad(np.diagonal(covariance, axis1=1, axis2=2), ((0, 0), (2, 0))))
    height, point, spread = np.concatenate(weights), np.concatenate(points), np.concatenate(spreads)
    weight = np.exp(height - height.max())
    weight /= weight.sum()
    means = weight @ point
    variances = weight @ ((point - means) ** 2 + spread)
    how = "Gaussian levels given their scales, which are on a grid"
    return Moments(means, np.sqrt(variances), how)


MODELS = {
    "ar2": autoregression,
    "arma": moving_average,
    "growth": growth,
    "local-level": local_level,
}
