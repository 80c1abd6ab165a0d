"""The log density of more rows than are worked on at once."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .target import Target


def log_density_in_blocks(target: Target, z: Float[Array, " dim"], rows: int) -> Float[Array, ""]:
    """`target.log_density(z)`, with at most `rows` rows of data worked on at once."""
    if target.rows <= rows:
        return target.log_density(z)

    def total(start: Int[Array, ""], count: int) -> Float[Array, ""]:
        return jnp.sum(target.batch(start + jnp.arange(count)).log_likelihoods(z))

    blocks, rest = divmod(target.rows, rows)
    sums = jax.lax.map(lambda start: total(start, rows), rows * jnp.arange(blocks))
    log_lik = jnp.sum(sums)
    if rest:
        log_lik += total(jnp.asarray(rows * blocks), rest)
    return target.log_prior(target.point(z)) + target.scale * log_lik
