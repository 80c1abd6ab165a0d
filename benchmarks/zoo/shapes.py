"""Bare densities with a shape of their own, all with known moments: skewed, heavy-tailed, bent."""

import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, polygamma

from .densities import normal, normals, student_t
from .model import Model, Moments, density


def _by_quadrature(log_density, low: float, high: float) -> Moments:
    grid = np.linspace(low, high, 400_001)
    log_p = np.asarray(log_density(jnp.asarray(grid)))
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = weight @ grid
    return Moments(
        np.array([mean]), np.array([np.sqrt(weight @ (grid - mean) ** 2)]), "quadrature on a grid"
    )


def skewed() -> Model:
    """The logarithm of a gamma variable of shape 0.5."""
    exact = Moments(
        np.array([digamma(0.5)]), np.array([np.sqrt(polygamma(1, 0.5))]), "digamma and trigamma"
    )
    return Model(
        "log of a gamma variable", density(lambda z: 0.5 * z[0] - jnp.exp(z[0]), 1), exact=exact
    )


def student() -> Model:
    """Five independent Student-t variables with 5 degrees of freedom."""
    exact = Moments(np.zeros(5), np.full(5, np.sqrt(5 / 3)), "Student's t")
    target = density(lambda z: jnp.sum(student_t(z, 5.0, 0.0, 1.0)), 5)
    return Model("Student-t variables, 5 degrees of freedom", target, exact=exact)


def cauchy() -> Model:
    """Two Cauchy variables: there is no mean."""
    return Model(
        "Cauchy variables",
        density(lambda z: -jnp.sum(jnp.log1p(z**2)), 2),
        must_warn="tails so heavy that neither mean nor variance exist",
        proper=False,
    )


def cauchy_location() -> Model:
    """The location of Cauchy data with a Cauchy prior: nine observations."""
    y = jnp.asarray(2.0 + np.random.default_rng(1201).standard_cauchy(9))

    def log_density(z):
        return -jnp.log1p((z / 5) ** 2) - jnp.sum(jnp.log1p((y[:, None] - z[None]) ** 2), axis=0)

    exact = _by_quadrature(log_density, -200.0, 200.0)
    return Model("Cauchy data, Cauchy prior", density(lambda z: log_density(z)[0], 1), exact=exact)


def funnel() -> Model:
    """Neal's funnel: v ~ N(0, 3²), nine x ~ N(0, e^v)."""

    def log_density(z):
        return normal(z[0], 0.0, 3.0) + normals(z[1:], 0.0, jnp.exp(0.5 * z[0]))

    # E x² = E e^v = e^{9/2}
    exact = Moments(np.zeros(10), np.array([3.0, *[np.exp(9 / 4)] * 9]), "log-normal moments")
    why = "a funnel: nine scales follow one coordinate"
    return Model("Neal's funnel", density(log_density, 10), exact=exact, must_warn=why)


def banana() -> Model:
    """x ~ N(0, 1), y ~ N(2 x², 0.5²)."""

    def log_density(z):
        return normal(z[0], 0.0, 1.0) + normal(z[1], 2 * z[0] ** 2, 0.5)

    # Var 2x² = 4 · 2
    exact = Moments(np.array([0.0, 2.0]), np.array([1.0, np.sqrt(8.25)]), "moments of x⁴")
    why = "bent: no Gaussian follows a parabola"
    return Model("banana", density(log_density, 2), exact=exact, must_warn=why)


MODELS = {
    "skewed": skewed,
    "student": student,
    "cauchy": cauchy,
    "cauchy-location": cauchy_location,
    "funnel": funnel,
    "banana": banana,
}
