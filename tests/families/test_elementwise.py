"""Monotone maps of one coordinate: inverses, slopes, knots, and the identity that each begins as."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.families.elementwise import MOST, Affine, RationalQuadratic

KINDS = {"affine": Affine(), "spline": RationalQuadratic(3, 2.5)}
every = pytest.mark.parametrize("name", KINDS)
# Inside the spline, at its ends and beyond.
U = np.array([*np.linspace(-3.9, 3.9, 26), 0.0, -2.5, 2.5, -30.0, 7.0])


def maps(name):
    """Forward and inverse of many places for one vector of parameters."""
    kind = KINDS[name]
    return (jax.jit(jax.vmap(f, (0, None))) for f in (kind.forward, kind.inverse))


def parameters(name, seed=0, size=1.0):
    return size * np.random.default_rng(seed).standard_normal(KINDS[name].parameters)


@every
def test_without_parameters_it_is_the_identity(name):
    forward, inverse = maps(name)
    v, log_slope = forward(U, np.zeros(KINDS[name].parameters))
    np.testing.assert_allclose(v, U, atol=1e-12)
    np.testing.assert_allclose(log_slope, 0, atol=1e-12)
    np.testing.assert_allclose(inverse(U, np.zeros(KINDS[name].parameters)), U, atol=1e-12)


@every
def test_there_and_back_and_the_slope_on_the_way(name):
    forward, inverse = maps(name)
    slope = jax.jit(jax.vmap(jax.grad(lambda u, p: KINDS[name].forward(u, p)[0]), (0, None)))
    for seed, size in enumerate((0.1, 0.5, 1.0, 1.0, 3.0)):
        p = parameters(name, seed, size)
        v, log_slope = forward(U, p)
        # Rounding times the largest of slopes, or of their inverses: below exp(10) here.
        np.testing.assert_allclose(inverse(v, p), U, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(np.exp(log_slope), slope(U, p), rtol=1e-9)
        order = np.argsort(U)
        assert np.all(np.diff(np.asarray(v)[order]) > 0)


@every
def test_every_parameter_does_something_and_none_is_missing(name):
    kind = KINDS[name]
    places = np.linspace(-2.49, 2.49, 100)
    of = jax.jit(jax.jacobian(lambda p: jnp.stack(jax.vmap(kind.forward, (0, None))(places, p))))
    moved = np.abs(of(parameters(name))).max(axis=(0, 1))
    assert moved.shape == (kind.parameters,)
    assert np.all(moved > 1e-6)
    assert kind.parameters == {"affine": 2, "spline": 2 + 3 + 3 + 2}[name]


@every
def test_the_first_two_are_a_log_scale_and_a_shift(name):
    forward, _ = maps(name)
    rest = parameters(name)
    rest[:2] = 0
    v, log_slope = forward(U, rest)
    for log_scale, shift in ((0.3, 5.0), (-2.0, -0.5), (1000.0, 0.0), (-1000.0, 1.0)):
        p = np.concatenate([[log_scale, shift], rest[2:]])
        ours, ours_slope = forward(U, p)
        bounded = MOST * np.tanh(log_scale / MOST)
        np.testing.assert_allclose(ours, np.asarray(v) * np.exp(bounded) + shift, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours_slope, np.asarray(log_slope) + bounded, atol=1e-9)


def test_a_spline_passes_its_knots_at_their_slopes():
    """Widths and heights are shares by softmax, of which each has its least; slopes by softplus."""
    kind = KINDS["spline"]
    assert isinstance(kind, RationalQuadratic)
    forward, p = next(maps("spline")), parameters("spline")
    p[:2] = 0
    widths, heights, slopes = np.split(p[2:], [kind.bins, 2 * kind.bins])
    least = kind.least

    def knots(raw):
        share = np.exp(raw) / np.sum(np.exp(raw))
        share = least + (1 - least * kind.bins) * share
        return kind.reach * (2 * np.cumsum(share)[:-1] - 1)

    x, y = knots(widths), knots(heights)
    v, log_slope = forward(x, p)
    np.testing.assert_allclose(v, y, atol=1e-9)
    expected = least + (1 - least) * np.log1p((np.e - 1) * np.exp(slopes))
    np.testing.assert_allclose(np.exp(log_slope), expected, rtol=1e-7)
    # At the ends it meets the identity, with its slope.
    ends = kind.reach * np.array([-1.0, 1.0])
    for side in (ends, ends * (1 - 1e-9)):
        v, log_slope = forward(side, p)
        np.testing.assert_allclose(v, ends, rtol=1e-8)
        np.testing.assert_allclose(log_slope, 0, atol=1e-6)


def test_a_spline_has_eight_bins_within_four_sds():
    assert RationalQuadratic().parameters == 2 + 8 + 8 + 7
    assert RationalQuadratic().reach == 4.0
