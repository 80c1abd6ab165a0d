"""Real NVP as the paper's appendix has it: widths, halves, bounds and start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_same

from quietgrad.families import AffineRealNVP, RealNVP
from quietgrad.families.flow import ShiftScale
from quietgrad.families.real_nvp import glorot_normal

DIMS = (1, 2, 5, 37)


def shapes(network):
    return [w.shape for w in network.weights]


@pytest.mark.turns(2)
@pytest.mark.parametrize("dim", DIMS)
def test_networks_have_the_papers_widths(dim):
    first, second = RealNVP.init(dim, key=jr.key(0)).layers
    half, rest = dim // 2, dim - dim // 2
    for layer, kept, moved in ((first, half, rest), (second, rest, half)):
        for network in (layer.scale, layer.shift):
            assert shapes(network) == [(kept, 8), (8, 16), (16, 16), (16, moved)]
            assert [b.shape for b in network.biases] == [(8,), (16,), (16,), (moved,)]


@pytest.mark.turns(2)
@pytest.mark.parametrize("dim", DIMS)
def test_first_layer_keeps_the_first_half_and_the_second_the_other(dim):
    first, second = RealNVP.init(dim, key=jr.key(0)).layers
    u = jnp.linspace(-1, 1, dim) + 0.1
    half = dim // 2
    after_first, after_second = first.forward(u)[0], second.forward(u)[0]
    np.testing.assert_array_equal(after_first[:half], u[:half])
    np.testing.assert_array_equal(after_second[half:], u[half:])
    if dim > 1:
        assert np.all(after_first[half:] != u[half:])
        assert np.all(after_second[:half] != u[:half])


def test_scales_stay_between_1_over_e_and_e():
    """However large the weights: each coordinate moves once, so |log det| is at most dim."""
    dim = 5
    q = jax.tree.map(
        lambda x: 100 * x if eqx.is_inexact_array(x) else x, RealNVP.init(dim, key=jr.key(0))
    )
    e = 10 * jr.normal(jr.key(1), (50, dim))
    for layer in q.layers:
        _, log_det = jax.vmap(layer.forward)(e)
        moved = dim - dim // 2
        assert np.all(np.abs(log_det) <= moved + 1e-9)
        assert np.max(np.abs(log_det)) > 1


def test_weights_are_those_of_jaxs_initializer(key):
    keys, shapes = jr.split(key, 3), [(15, 8), (8, 16), (16, 2)]
    glorot = jax.nn.initializers.glorot_normal()
    for ours, each, shape in zip(glorot_normal(keys, shapes), keys, shapes, strict=True):
        assert_same(ours, glorot(each, shape, ours.dtype), operations=1)


def test_start_is_glorot_normal_with_zero_biases():
    network = RealNVP.init(400, key=jr.key(0)).layers[0].scale
    assert all(not np.any(b) for b in network.biases)
    for weight in network.weights:
        # The variance of n weights is known to a factor 1 +- sqrt(2 / n); 5 of those.
        relative = np.var(weight) * sum(weight.shape) / 2
        assert abs(relative - 1) < 5 * np.sqrt(2 / weight.size)


def test_affine_variant_starts_as_the_papers_flow():
    plain, affine = (cls.init(5, key=jr.key(3)) for cls in (RealNVP, AffineRealNVP))
    assert isinstance(affine.layers[-1], ShiftScale)
    assert eqx.tree_equal(affine.layers[:-1], plain.layers)
    np.testing.assert_array_equal(affine.sample(jr.key(1), 4), plain.sample(jr.key(1), 4))


def test_affine_variant_can_leave_the_bounds():
    q = AffineRealNVP.init(2, key=jr.key(0))
    far = eqx.tree_at(lambda q: q.layers[-1].log_scale, q, jnp.full(2, 9.0))
    assert np.std(far.sample(jr.key(0), 100)) > 1000


@pytest.mark.parametrize("made", [RealNVP, AffineRealNVP])
def test_a_flow_has_a_coupling_at_least(made):
    with pytest.raises(ValueError, match="couplings"):
        made.init(3, key=jr.key(0), couplings=0)


@pytest.mark.parametrize(("couplings", "widths"), [(1, (4,)), (3, (4, 4)), (4, ())])
def test_other_depths_and_widths(couplings, widths):
    q = RealNVP.init(3, key=jr.key(0), couplings=couplings, widths=widths)
    assert len(q.layers) == couplings
    z, log_prob = q.transport_and_log_prob(jnp.array([0.3, -1.0, 2.0]))
    # Some tens of additions of numbers of size one.
    np.testing.assert_allclose(q.log_prob(z), log_prob, rtol=0, atol=1e-13)
