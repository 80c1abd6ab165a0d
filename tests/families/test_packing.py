"""A triangle and its packed form: there and back, on the host as on the device."""

import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad import FullRank
from quietgrad.families.full_rank import host_pack, host_unpack


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_triangle_comes_back_and_is_the_root_of_the_covariance(dim):
    rng = np.random.default_rng(dim)
    root = np.tril(rng.normal(size=(dim, dim)), -1) + np.diag(rng.uniform(0.2, 3.0, dim))
    packed = host_pack(root)
    np.testing.assert_allclose(host_unpack(packed, dim), root, rtol=1e-14)
    q = FullRank(loc=jnp.zeros(dim), packed=jnp.asarray(packed))
    np.testing.assert_allclose(q.covariance_matmul(jnp.eye(dim)), root @ root.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(q.variance(), np.sum(root**2, axis=1), rtol=1e-12)
