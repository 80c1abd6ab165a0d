"""Rows against draws: the gradient of the negative log likelihood in one backward pass.

grad -log p = mean_rows grad E - E_p grad E, and with weights w that are held fixed the second is the
gradient of sum_l w_l E(x_l).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..problem import AbstractEnergy


def contrast(
    model: AbstractEnergy,
    params: PyTree,
    rows: Float[Array, "rows dim"],
    draws: Float[Array, "draws dim"],
    weights: Float[Array, " draws"],
) -> tuple[Float[Array, ""], PyTree]:
    """mean E(rows) - sum w E(draws), and its gradient with respect to the parameters."""
    points = jax.lax.stop_gradient(jnp.concatenate([rows, draws]))
    equal = jnp.full(rows.shape[0], 1 / rows.shape[0], weights.dtype)
    signed = jax.lax.stop_gradient(jnp.concatenate([equal, -weights]))

    def gap(params: PyTree) -> Float[Array, ""]:
        return signed @ jax.vmap(model, in_axes=(None, 0))(params, points)

    return jax.value_and_grad(gap)(params)
