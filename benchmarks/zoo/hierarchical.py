"""Varying intercepts, centred and not: eight schools, and radon-like counties."""

import jax.numpy as jnp
import numpy as np

import quietgrad as qg

from .densities import log_half_cauchy, log_half_normal, normal, normals
from .model import Model, View, density

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools_centred() -> Model:
    """z = μ, log τ, and the eight effects themselves: a funnel towards τ = 0."""

    def log_density(z):
        mean, log_std, effect = z[0], z[1], z[2:]
        prior = normal(mean, 0.0, 5.0) + log_half_cauchy(log_std, 5.0)
        return prior + normals(effect, mean, jnp.exp(log_std)) + normals(EFFECT, effect, ERROR)

    view = View(lambda u: jnp.concatenate([u[:2], u[0] + jnp.exp(u[1]) * u[2:]]), lambda u: 8 * u[1])
    return Model(
        "eight schools, centred",
        density(log_density, 10),
        view=view,
        accept=0.97,
    )


def schools_noncentred() -> Model:
    """z = μ, log τ, and the eight effects in units of τ."""

    def log_density(z):
        mean, log_std, unit = z[0], z[1], z[2:]
        prior = normal(mean, 0.0, 5.0) + log_half_cauchy(log_std, 5.0) + normals(unit, 0.0, 1.0)
        return prior + normals(EFFECT, mean + jnp.exp(log_std) * unit, ERROR)

    return Model("eight schools, non-centred", density(log_density, 10), accept=0.97)


def _houses():
    rng = np.random.default_rng(501)
    county = np.repeat(np.arange(30), rng.integers(2, 14, size=30))
    floor = (rng.uniform(size=county.size) < 0.3).astype(float)
    intercept = 1.4 + 0.35 * rng.normal(size=30)
    y = intercept[county] - 0.7 * floor + 0.7 * rng.normal(size=county.size)
    return county, floor, y


def _common(z):
    """Priors of z[:4] = mean of the counties, effect of the floor, log sd between, log sd within."""
    scales = log_half_normal(z[2], 1.0) + log_half_normal(z[3], 1.0)
    return normals(z[:2], 0.0, 5.0) + scales


def radon_centred() -> Model:
    """z[4:] are the counties' intercepts."""
    target = qg.Target(
        lambda z: _common(z) + normals(z[4:], z[0], jnp.exp(z[2])),
        lambda z, d: normal(d[2], z[4:][d[0]] + z[1] * d[1], jnp.exp(z[3])),
        _houses(),
        dim=34,
    )
    view = View(lambda u: jnp.concatenate([u[:4], u[0] + jnp.exp(u[2]) * u[4:]]), lambda u: 30 * u[2])
    return Model("radon-like counties, centred", target, view=view, accept=0.95)


def radon_noncentred() -> Model:
    """z[4:] are the counties' intercepts in units of their spread."""
    target = qg.Target(
        lambda z: _common(z) + normals(z[4:], 0.0, 1.0),
        lambda z, d: normal(d[2], z[0] + jnp.exp(z[2]) * z[4:][d[0]] + z[1] * d[1], jnp.exp(z[3])),
        _houses(),
        dim=34,
    )
    return Model("radon-like counties, non-centred", target, accept=0.95)


MODELS = {
    "schools-centred": schools_centred,
    "schools-noncentred": schools_noncentred,
    "radon-centred": radon_centred,
    "radon-noncentred": radon_noncentred,
}
