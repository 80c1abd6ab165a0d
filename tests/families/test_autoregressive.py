"""Autoregressive layers and couplings against their dense Jacobian, which none of them forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.families.autoregressive import Autoregressive
from quietgrad.families.elementwise import Affine

DIM = 5


def layer_of(blocks):
    """A layer with no parameter at zero."""
    rng = np.random.default_rng(0)
    inputs, bias = jnp.asarray(rng.normal(size=(DIM, 3))), jnp.asarray(rng.normal(size=3))
    start = Autoregressive.identity(inputs, bias, Affine(), blocks)
    return jax.tree.map(lambda x: x + 0.4 * rng.normal(size=x.shape), start)


@pytest.mark.parametrize("blocks", [2, DIM], ids=["coupling", "one by one"])
def test_inverse_score_and_determinant_are_those_of_the_dense_jacobian(blocks):
    """And the inverse has the derivatives of an inverse, by the point and by the parameters."""
    layer, rng = layer_of(blocks), np.random.default_rng(1)
    u, score = rng.normal(size=DIM), rng.normal(size=DIM)
    arrays, static = eqx.partition(layer, eqx.is_inexact_array)

    def log_det(u):
        return jnp.linalg.slogdet(jax.jacobian(lambda u: layer.forward(u)[0])(u))[1]

    @jax.jit
    def facts(u, score):
        v = layer.forward(u)[0]
        there = jax.jacobian(lambda u, p: eqx.combine(p, static).forward(u)[0], (0, 1))(u, arrays)
        back = jax.jacobian(lambda v, p: eqx.combine(p, static).inverse(v), (0, 1))(v, arrays)
        ours = layer.inverse(v), layer.forward_with_score(u, score)
        return v, there, back, ours, jax.value_and_grad(log_det)(u)

    v, (by_u, by_arrays), own, (back, with_score), (det, slope) = facts(u, score)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)  # noqa: E731
    close(back, u)
    close(own[0], np.linalg.inv(by_u))
    for ours, theirs in zip(jax.tree.leaves(own[1]), jax.tree.leaves(by_arrays), strict=True):
        close(ours, -np.tensordot(np.linalg.inv(by_u), theirs, 1))
    close(with_score[0], v)
    close(with_score[1], det)
    close(with_score[2], np.linalg.solve(by_u.T, score - slope))
