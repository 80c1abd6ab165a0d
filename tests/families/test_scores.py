"""Scores of mixtures, and starts on bases whose variance is not one."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad.families import Arrowhead, Components, FullRank, Mixture
from quietgrad.families.bases import Normal, StudentT


def test_the_score_of_a_mixture_has_the_weights_of_the_components_at_the_draw():
    """Between components of unlike weights: the derivative of the log density."""
    root = np.array([[[1.0, 0.0], [0.4, 0.7]], [[0.6, 0.0], [-0.2, 1.2]]])
    parts = Components(np.log([0.9, 0.1]), np.array([[0.0, 0.5], [1.0, -1.0]]), root)
    q = Mixture.of(parts, np.dtype(float))

    @jax.jit
    def both(e):
        z, _, score = q.transport_and_score(e)
        return score, jax.grad(q.log_prob)(z)

    scores, slopes = jax.vmap(both)(jr.normal(jr.key(0), (5, q.base_dim)))
    np.testing.assert_allclose(scores, slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("freedom", [5.0, 50.0])
def test_a_start_on_heavy_tails_has_the_covariance_of_what_it_starts_from(freedom):
    """The variance of a draw of such a base is freedom / (freedom - 2), not one."""
    base = StudentT(freedom)
    other = Arrowhead.init(3, key=jr.key(1), base=base)
    start = FullRank.init(3, key=jr.key(2), base=base).start_from(other, key=jr.key(3))
    np.testing.assert_allclose(
        start.covariance_matmul(jnp.eye(3)), other.covariance_matmul(jnp.eye(3)), rtol=1e-10
    )


@pytest.mark.parametrize("base", [Normal(), StudentT(5.0)])
def test_a_quadratic_s_member_has_its_covariance_on_every_base(base):
    """And gradients in its coordinates are those along the columns of the root."""
    root = np.array([[2.0, 0, 0], [1.5, 0.5, 0], [0.3, 0.1, 0.2]])
    mean, covariance = np.array([1.0, -2.0, 0.5]), root @ root.T
    q = FullRank.init(3, key=jr.key(4), base=base).for_quadratic(mean, np.linalg.inv(covariance))
    np.testing.assert_allclose(q.host_covariance(), covariance, rtol=1e-8)
    np.testing.assert_allclose(q.covariance_matmul(jnp.eye(3)), covariance, rtol=1e-8)
    gradient = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(q.whitened(gradient), root.T @ gradient, rtol=1e-7)
