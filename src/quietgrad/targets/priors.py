"""Log densities that several models use."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def normal_log_prob(
    x: Float[Array, "*shape"],
    *,
    std: float | Float[Array, ""] | None = None,
    log_std: float | Float[Array, ""] | None = None,
) -> Float[Array, "*shape"]:
    """log N(x; 0, std^2), elementwise; give the scale as `std` or as `log_std`."""
    if std is not None and log_std is None:
        log_scale = jnp.log(std)
    elif log_std is not None and std is None:
        log_scale = log_std
    else:
        raise ValueError("give exactly one of std and log_std")
    return -0.5 * (x * jnp.exp(-log_scale)) ** 2 - log_scale - HALF_LOG_2PI
