"""A bent Gaussian: its map on the host against JAX, and its derivatives against autodiff."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad.families import Curved, FullRank, MeanField
from quietgrad.families.bend import BLOCK, Bend, HostBend

ORDERS = [(0,), (1, 0), (2, 0, 3, 1)]


def bends(order, seed=0, size=0.3):
    """The same random bend on the host and in JAX."""
    rng, dim = np.random.default_rng(seed), len(order)
    host = HostBend(
        size * rng.standard_normal((4, dim)),
        size * rng.standard_normal((3, dim * (dim - 1) // 2)),
        order,
    )
    return host, Bend(jnp.asarray(host.own), jnp.asarray(host.pairs), order)


def draws(order, count=7):
    return np.random.default_rng(1).standard_normal((count, len(order)))


@pytest.mark.turns(2)
@pytest.mark.parametrize("order", ORDERS)
def test_the_host_s_map_is_the_layer_s(order):
    (host, layer), u = bends(order), draws(order)
    v, log_det = jax.vmap(layer.forward)(u)
    found = host.at(u)
    np.testing.assert_allclose(found.image, v, atol=1e-12)
    np.testing.assert_allclose(found.log_det, log_det, atol=1e-12)
    np.testing.assert_allclose(host.inverse(found.image), u, atol=1e-9)


@pytest.mark.turns(2)
@pytest.mark.parametrize("order", ORDERS)
def test_log_determinant_and_inverse(order):
    (_, layer), u = bends(order), draws(order)
    v, log_det = jax.vmap(layer.forward)(u)
    jacobian = jax.vmap(jax.jacfwd(lambda x: layer.forward(x)[0]))(u)
    np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], log_det, atol=1e-10)
    np.testing.assert_allclose(jax.vmap(layer.inverse)(v), u, atol=1e-9)


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("order", ORDERS)
def test_scores_are_the_gradient_of_the_density(order):
    (host, layer), u = bends(order), draws(order)

    def log_density(v):
        u = layer.inverse(v)
        return -0.5 * jnp.sum(u**2) - layer.forward(u)[1]

    v, _, score = jax.vmap(layer.forward_with_score)(u, -u)
    np.testing.assert_allclose(host.at(u).score(), score, atol=1e-9)
    # By central differences, as the inverse is a loop. Their error is about 1e-16 / 1e-6 + 1e-12.
    heights = jax.vmap(log_density)
    for i, unit in enumerate(1e-6 * jnp.eye(len(order))):
        rise = (heights(v + unit[None]) - heights(v - unit[None])) / 2e-6
        np.testing.assert_allclose(score[:, i], rise, rtol=1e-6, atol=1e-6)


def test_scores_of_several_blocks_of_coordinates_obey_the_chain_rule():
    """The slope of log q along the images is that along the draws, by central differences of both."""
    dim = 2 * BLOCK + 3
    order = tuple(np.random.default_rng(4).permutation(dim).tolist())
    (host, _), u = bends(order, size=0.1), draws(order, 3)
    score = host.at(u).score()

    def heights_and_images(u):
        found = host.at(u)
        return -0.5 * np.sum(u**2, axis=1) - found.log_det, found.image

    # Their error is about 1e-16 / 1e-5 + 1e-10, times numbers of some tens.
    for move in 1e-5 * np.eye(dim):
        (up, above), (down, below) = heights_and_images(u + move), heights_and_images(u - move)
        along = np.sum(score * (above - below), axis=1) / 2e-5
        np.testing.assert_allclose(along, (up - down) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.turns(2)
@pytest.mark.parametrize("order", ORDERS)
def test_pulled_back_cotangents_are_gradients(order):
    (host, layer), u = bends(order), draws(order)
    g = np.random.default_rng(2).standard_normal(u.shape)

    def total(own, pairs):
        moved = jax.vmap(Bend(own, pairs, order).forward)(jnp.asarray(u))[0]
        return jnp.mean(jnp.sum(g * moved, axis=1))

    own, pairs = jax.grad(total, (0, 1))(layer.own, layer.pairs)
    pulled = host.at(u).pull(g)
    np.testing.assert_allclose(pulled.own, own, atol=1e-12)
    np.testing.assert_allclose(pulled.pairs, pairs, atol=1e-12)


def test_scales_that_would_overflow_are_bounded_and_have_no_gradient():
    host = HostBend(np.zeros((4, 2)), np.array([[1e3], [0.0], [0.0]]), (0, 1))
    found = host.at(np.array([[1.0, 0.5], [-1.0, 0.5]]))
    assert np.all(np.isfinite(found.image))
    assert np.all(np.isfinite(found.score()))
    assert found.pull(np.ones((2, 2))).pairs[0, 0] == 0


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_member_on_the_host_and_in_jax(dtype):
    host, _ = bends((2, 0, 3, 1))
    raw = np.random.default_rng(3).standard_normal(10)
    gaussian = FullRank(loc=jnp.arange(4, dtype=dtype), packed=jnp.asarray(0.3 * raw, dtype))
    q = Curved.made_of(host, gaussian)
    e = draws((0, 1, 2, 3), 20)
    z, log_q = jax.vmap(q.transport_and_log_prob)(jnp.asarray(e, dtype))
    ours, ours_log_q = q.host_transport_and_log_prob(e)
    tolerance = 50 * float(jnp.finfo(dtype).eps) * 20
    assert q.dtype == dtype
    np.testing.assert_allclose(ours, z, atol=tolerance)
    np.testing.assert_allclose(ours_log_q, log_q, atol=tolerance)
    np.testing.assert_allclose(q.log_prob(z), log_q, atol=20 * tolerance)
    np.testing.assert_allclose(q.host_log_prob_at(ours), ours_log_q, atol=20 * tolerance)


def test_it_starts_as_the_gaussian_that_it_is_given(key):
    q = Curved.init(3, key=key)
    for start in (MeanField.init(3, key=key), FullRank.init(3, key=key)):
        inside = q.start_from(start, key=key)
        e = jr.normal(key, (5, 3))
        np.testing.assert_allclose(
            jax.vmap(inside.transport)(e), jax.vmap(start.transport)(e), atol=1e-12
        )


def test_an_order_lists_every_coordinate_once(key):
    with pytest.raises(ValueError, match="once each"):
        Curved.init(3, key=key, order=(0, 0, 2))
