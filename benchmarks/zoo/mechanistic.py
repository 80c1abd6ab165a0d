"""Ordinary differential equations, solved by Runge-Kutta steps: predators and prey, an epidemic."""

import jax
import jax.numpy as jnp
import numpy as np

from .densities import log_half_normal, negative_binomial, normal, normals
from .model import Model, density


def _solve(rate, state, step, substeps, points):
    """The states at `points` times `substeps` steps apart, by RK4."""

    def runge_kutta(x, _):
        a = rate(x)
        b = rate(x + 0.5 * step * a)
        c = rate(x + 0.5 * step * b)
        d = rate(x + step * c)
        return x + step / 6 * (a + 2 * b + 2 * c + d), None

    def point(x, _):
        after, _ = jax.lax.scan(runge_kutta, x, length=substeps)
        return after, after

    return jax.lax.scan(point, state, length=points)[1]


def _hunt(z):
    def rate(x):
        prey = z[0] * x[0] - z[1] * x[0] * x[1]
        return jnp.stack([prey, z[3] * x[0] * x[1] - z[2] * x[1]])

    return _solve(rate, z[4:6], 0.1, 10, 20)


def predators() -> Model:
    """Lotka-Volterra: z = logs of four rates, two first sizes and the sd of log-normal errors."""
    truth = np.log([0.55, 0.028, 0.84, 0.026, 30.0, 5.0, 0.2])
    rng = np.random.default_rng(901)
    path = np.asarray(_hunt(jnp.exp(jnp.asarray(truth))))
    y = np.log(path) + 0.2 * rng.normal(size=path.shape)
    centre = jnp.asarray(np.log([0.5, 0.03, 0.8, 0.03, 20.0, 10.0]))

    def log_density(z):
        path = _hunt(jnp.exp(z[:6]))
        # An unstable path can turn negative, where there is no logarithm.
        log_path = jnp.log(jnp.maximum(path, 1e-10))
        prior = normals(z[:6], centre, 0.7) + log_half_normal(z[6], 1.0)
        return prior + jnp.sum(normal(y, log_path, jnp.exp(z[6])))

    return Model("Lotka-Volterra equations", density(log_density, 7), start=truth)


def _epidemic(contact, recovery, first):
    def rate(x):
        new = contact * x[0] * x[1]
        return jnp.stack([-new, new - recovery * x[1]])

    sick = _solve(rate, jnp.stack([1 - first, first]), 0.25, 4, 30)[:, 1]
    return jnp.log(jnp.maximum(1000 * sick, 1e-10))


def epidemic() -> Model:
    """SIR with counts of the sick: z = logs of contact, recovery, first share, size of the noise."""
    truth = np.array([np.log(0.9), np.log(0.3), np.log(0.003), np.log(10.0)])
    rng = np.random.default_rng(902)
    mean = np.exp(np.asarray(_epidemic(*jnp.exp(jnp.asarray(truth[:3])))))
    y = rng.poisson(mean * rng.gamma(10.0, 0.1, size=30)).astype(float)

    def log_density(z):
        log_mean = _epidemic(jnp.exp(z[0]), jnp.exp(z[1]), jnp.exp(z[2]))
        prior = normals(z[:2], -0.5, 1.0) + normal(z[2], -5.0, 1.0) + normal(z[3], 2.0, 1.0)
        return prior + jnp.sum(negative_binomial(y, log_mean, z[3]))

    return Model("SIR epidemic", density(log_density, 4), start=truth)


MODELS = {"lotka-volterra": predators, "epidemic": epidemic}
