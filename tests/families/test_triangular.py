"""The triangular flow on the host against jax's own derivatives of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad.families.full_rank import FullRank
from quietgrad.families.triangular import Triangular
from quietgrad.solvers.few_dimensions import FlowSteps


def a_member(dim: int, seed: int) -> Triangular:
    """With random numbers in every place, and its coordinates in another order."""
    rng = np.random.default_rng(seed)
    root = np.tril(rng.normal(size=(dim, dim))) * 0.3 + np.diag(rng.uniform(0.5, 2, dim))
    gaussian = FullRank.of_host(rng.normal(size=dim), np.tril(root), np.float64)
    start = Triangular.of_gaussian(gaussian, rng.permutation(dim))
    own = start.on_host()
    return start.with_host(own.with_numbers(0.3 * rng.normal(size=own.numbers.size)))


@pytest.mark.turns(2)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_gradient_on_the_host_is_that_of_the_program(dim):
    q = a_member(dim, dim)
    e, slopes = np.random.default_rng(1).normal(size=(2, 7, dim))

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(q: Triangular) -> jax.Array:
        z, log_det = jax.vmap(q.transport_and_log_det)(jnp.asarray(e))
        return jnp.sum(slopes * z) + jnp.sum(log_det)

    found = gradient(q)
    names = ("shift", "log_scale", "skew", "tail", "turn", "mean_slope", "scale_slope")
    expected = np.concatenate([np.ravel(getattr(found, name)) for name in names])
    own = q.on_host()
    at = own.carried(e)
    np.testing.assert_allclose(own.pulled(e, at, slopes), expected, rtol=1e-9, atol=1e-9)
    z, log_det = jax.vmap(q.transport_and_log_det)(jnp.asarray(e))
    np.testing.assert_allclose(at.z, z, rtol=1e-9)
    np.testing.assert_allclose(at.log_det, log_det, rtol=1e-9)


def test_numbers_go_to_the_host_and_back():
    q = a_member(4, 0)
    own = q.on_host()
    np.testing.assert_array_equal(own.with_numbers(own.numbers).numbers, own.numbers)
    for name, part in own._asdict().items():
        if name not in ("mean", "root", "order"):
            np.testing.assert_array_equal(np.asarray(getattr(q.with_host(own), name), float), part)


def test_points_are_carried_back():
    q = a_member(4, 2)
    e = np.asarray(jr.normal(jr.key(0), (6, 4)), float)
    own = q.on_host()
    at = own.carried(e)
    np.testing.assert_allclose(own.inverse(at.z), e, atol=1e-8)
    found = q.host_log_prob_at(at.z)
    np.testing.assert_allclose(found, q.log_prob(jnp.asarray(at.z)), atol=1e-7)


def test_tails_of_their_own_kinds():
    """The log of a half-normal scale: exponential to the left, lighter than exponential to the right.

    With one kind of tail for both sides KL(q||p) was 0.006 nats, and the sd 0.97 of pi / sqrt(8).
    """

    def density(x):
        return np.sum(x - 0.5 * np.exp(2 * x), axis=1), 1 - np.exp(2 * x)

    start = Triangular.of_gaussian(FullRank.of_host(np.array([-0.6]), np.array([[0.8]]), np.float64))
    flow = FlowSteps(pairs=512).fit(density, start, np.random.default_rng(0))[0]
    z, log_q = flow.host_transport_and_log_prob(np.random.default_rng(1).normal(size=(100_000, 1)))
    left = 0.5 * np.log(np.pi / 2) - (density(z)[0] - log_q)
    assert np.mean(left) < 1e-3 + 5 * np.std(left) / np.sqrt(left.size)
    assert abs(np.std(z) / (np.pi / np.sqrt(8)) - 1) < 0.02


@pytest.mark.parametrize("even", [0.0127, np.inf])
def test_a_flow_that_overfitted_its_draws_goes_on_at_more_of_them(even):
    """A neck that the flow can have exactly: what is left of a gap is due to the draws."""
    asked = []

    def density(x):
        asked.append(len(x))
        scale = np.exp(-0.4 * x[:, :1])
        v = x[:, 1:] * scale
        first = -x[:, 0] - 1.6 + 0.4 * np.sum(v**2, axis=1)
        value = -0.5 * x[:, 0] ** 2 - 1.6 * x[:, 0] - 0.5 * np.sum(v**2, axis=1)
        return value, np.column_stack([first, -v * scale])

    start = Triangular.of_gaussian(FullRank.of_host(np.zeros(5), np.eye(5), np.float64))
    steps = FlowSteps(pairs=96, pairs_each=4, even=even, more=8)
    flow = steps.fit(density, start, np.random.default_rng(0))[0]
    most = max(asked)
    z, log_q = flow.host_transport_and_log_prob(np.random.default_rng(1).normal(size=(20_000, 5)))
    with np.errstate(over="ignore"):
        gap = 0.5 * np.var(density(z)[0] - log_q)
    assert (most, gap < 0.0127) == ((8 * 192, True) if even < np.inf else (256, False))


def test_a_flow_that_is_right_is_not_fitted_again():
    asked = []

    def density(x):
        asked.append(len(x))
        return -0.5 * np.sum(x**2, axis=1), -x

    start = Triangular.of_gaussian(FullRank.of_host(np.full(2, 0.3), np.eye(2), np.float64))
    FlowSteps().fit(density, start, np.random.default_rng(0))
    assert max(asked) == 256


def test_a_density_that_ends_beyond_the_first_draws_keeps_their_flow():
    """More draws are not finite either, and a flow cannot be fitted to them."""
    asked = []

    def density(x):
        asked.append(len(x))
        x = np.clip(x, -50.0, 50.0)
        value = -0.5 * np.sinh(x[:, 0]) ** 2 + np.log(np.cosh(x[:, 0]))
        value[0] = -np.inf if len(x) != 32 else value[0]
        return value, (np.tanh(x[:, 0]) - np.sinh(x[:, 0]) * np.cosh(x[:, 0]))[:, None]

    start = Triangular.of_gaussian(FullRank.of_host(np.zeros(1), 0.6 * np.eye(1), np.float64))
    flow, gained = FlowSteps(pairs=16, pairs_each=16).fit(density, start, np.random.default_rng(0))
    assert {32, 256, 128} == set(asked)
    e = np.array([[-1.0], [2.0]])
    assert gained > 0.01
    assert np.all(np.abs(flow.host_transport(e) - np.arcsinh(e)) < 0.1)
