"""A skewed normal draw: t = sinh(asinh e + a) (Jones & Pewsey 2009), without transcendental functions.

  t = e cosh a + r sinh a,    t' = cosh a + (e / r) sinh a > 0,    r = sqrt(1 + e^2).
Far out its slope is exp(a) to the right and exp(-a) to the left. For small a, t = e + a (1 + e^2 / 2):
the first-order correction of a Laplace approximation at the mode, if a = f''' s^3 / 3.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def skewed(e: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """t."""
    return e * jnp.cosh(a) + jnp.sqrt(1 + e**2) * jnp.sinh(a)


def unskewed(t: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """e: the same map with -a."""
    return skewed(t, -a)


def log_slope(e: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """log t'."""
    return jnp.log(jnp.cosh(a) + e / jnp.sqrt(1 + e**2) * jnp.sinh(a))
