"""Log densities that the models share, each with its normalising constant where a parameter is in it.

Positive parameters are given by their logarithm; such a density is that of the logarithm, with the
Jacobian in it.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def normal(x: Any, mean: Any, std: Any) -> Any:
    """N(x; mean, std²), elementwise."""
    return -0.5 * ((x - mean) / std) ** 2 - jnp.log(std) - HALF_LOG_2PI


def normals(x: Float[Array, " n"], mean: Any, std: Any) -> Float[Array, ""]:
    """The sum of `normal` over a vector."""
    return jnp.sum(normal(x, mean, std))


def student_t(x: Any, degrees: Any, mean: Any, std: Any) -> Any:
    """Student's t with location and scale, elementwise."""
    r = (x - mean) / std
    constant = gammaln(0.5 * (degrees + 1)) - gammaln(0.5 * degrees) - 0.5 * jnp.log(degrees * math.pi)
    return constant - jnp.log(std) - 0.5 * (degrees + 1) * jnp.log1p(r**2 / degrees)


def log_half_cauchy(log_x: Any, scale: float) -> Any:
    """Of log x, for x half-Cauchy."""
    # log1p(exp(2 s)) without overflow.
    return log_x - jnp.logaddexp(0.0, 2 * (log_x - math.log(scale)))


def log_half_normal(log_x: Any, scale: float) -> Any:
    """Of log x, for x half-normal."""
    return log_x - 0.5 * jnp.exp(2 * (log_x - math.log(scale)))


def log_exponential(log_x: Any, rate: float) -> Any:
    """Of log x, for x exponential."""
    return log_x - rate * jnp.exp(log_x)


def log_gamma(log_x: Any, shape: float, rate: float) -> Any:
    """Of log x, for x gamma."""
    return shape * log_x - rate * jnp.exp(log_x)


def log_inverse_gamma(log_x: Any, shape: float, scale: float) -> Any:
    """Of log x, for x inverse gamma."""
    return -shape * log_x - scale * jnp.exp(-log_x)


def poisson(y: Any, log_rate: Any) -> Any:
    """A Poisson count, without the factorial of the data."""
    return y * log_rate - jnp.exp(log_rate)


def bernoulli(y: Any, logit: Any) -> Any:
    """A zero or one, by its log odds."""
    return y * logit - jnp.logaddexp(logit, 0.0)


def negative_binomial(y: Any, log_mean: Any, log_size: Any) -> Any:
    """A count with mean μ and variance μ + μ²/size, without the factorial of the data."""
    size = jnp.exp(log_size)
    log_total = jnp.logaddexp(log_mean, log_size)
    counts = gammaln(y + size) - gammaln(size)
    return counts + size * (log_size - log_total) + y * (log_mean - log_total)
