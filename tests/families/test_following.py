"""A map that follows nested locals without solving for them: its derivatives, and how close it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hierarchy_models import normal_groups, normal_target, poisson_target
from scipy.linalg import block_diag

from quietgrad import Target
from quietgrad.families import FullRank, Hierarchical
from quietgrad.families.conditional import NestedLaplace, recentred, skewed_locals
from quietgrad.families.conditional.at_points import MOST_AT_FIRST
from quietgrad.families.conditional.following import fitted
from quietgrad.families.conditional.host_root import HostRoot
from quietgrad.structure import Structure

GROUPS = 6


def hierarchy(target, kind="arrowhead", *, size=1, skewed=False):
    blocks = np.arange(2, GROUPS * size + 2).reshape(GROUPS, size)
    begun = NestedLaplace.begin(target, Structure([0, 1], blocks, kind), np.zeros((size, GROUPS)))
    nested = recentred(begun, np.zeros(2), np.full(2, 1e-2), MOST_AT_FIRST)
    nested = skewed_locals(nested) if skewed else nested
    root = np.array([[0.5, 0.0], [0.2, 0.6]])
    return Hierarchical(of_globals=FullRank.of_host(np.zeros(2), root, np.float64), of_locals=nested)


def walk():
    """A random walk with steps of exp(z_1) in two coordinates, seen with noise."""
    y = jnp.asarray(np.random.default_rng(3).normal(size=(GROUPS, 2)).cumsum(axis=0))

    def log_density(z):
        x, tau = z[2:].reshape(GROUPS, 2), jnp.exp(z[1])
        steps = jnp.diff(x, axis=0, prepend=z[:1][None] * jnp.ones((1, 2)))
        turned = steps + 0.3 * steps[:, ::-1]
        prior = -0.5 * jnp.sum(z[:2] ** 2) - 0.5 * jnp.sum((turned / tau) ** 2) - steps.size * z[1]
        return prior - 0.5 * jnp.sum((y - x) ** 2)

    return Target.from_logdensity(log_density, dim=2 * GROUPS + 2)


CASES = {
    "normal": lambda: hierarchy(normal_target(normal_groups(GROUPS))),
    "skewed": lambda: hierarchy(poisson_target(np.arange(2 * GROUPS).reshape(GROUPS, 2)), skewed=True),
    "chain": lambda: hierarchy(walk(), "chain", size=2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_map_is_inverted_and_differentiated(name):
    q = CASES[name]()
    map, rng = q.following(np.random.default_rng(0)), np.random.default_rng(1)
    assert map is not None
    u, slope = rng.standard_normal((5, q.dim)), rng.standard_normal((5, q.dim))
    z, log_det = map.transport(u)
    np.testing.assert_allclose(map.inverse(z), u, atol=1e-9)
    h = 1e-5
    ahead = [map.transport(u + h * row) for row in np.eye(q.dim)]
    behind = [map.transport(u - h * row) for row in np.eye(q.dim)]
    jacobian = np.stack([(a[0] - b[0]) / (2 * h) for a, b in zip(ahead, behind, strict=True)], axis=2)
    by_log_det = np.stack([(a[1] - b[1]) / (2 * h) for a, b in zip(ahead, behind, strict=True)], axis=1)
    # Second-order differences with steps of 1e-5 are right to 1e-10 of third derivatives, and rounding.
    pulled = np.einsum("pi,pij->pj", slope, jacobian) + by_log_det
    np.testing.assert_allclose(map.pull(u, slope), pulled, atol=1e-7)
    constant = np.linalg.slogdet(jacobian)[1] - log_det
    np.testing.assert_allclose(constant, constant[0], atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_draws_of_the_hierarchy_are_standard_in_its_coordinates(name):
    """As they must be for chains of one step size, in the neck too."""
    q = CASES[name]()
    map, rng = q.following(np.random.default_rng(0)), np.random.default_rng(1)
    assert map is not None
    e = rng.standard_normal((2000, q.dim))
    u = map.inverse(q.host_transport(e))
    # Globals are standardised by those 1.5 times as far out.
    std = np.std(u, axis=0)
    np.testing.assert_allclose(std[:2], 1 / 1.5, rtol=0.25)
    np.testing.assert_allclose(std[2:], 1.0, rtol=0.35 if name == "skewed" else 0.15)
    narrow = q.host_transport(e)[:, 1] < -0.9
    np.testing.assert_allclose(np.std(u[narrow, 2:], axis=0), 1.0, rtol=0.35)


def test_units_of_the_globals_change_nothing():
    """Scales bend with the global that they follow most, whatever its units are."""
    rng = np.random.default_rng(0)
    g, at, own = rng.normal(size=(40, 2)), rng.normal(size=(7, 2)), rng.normal(size=(7, 3))
    # Curved in the first global. So few points allow only one of them to have bends.
    log_std = np.logaddexp(0.0, 2 * g[:, :1]) + 0.1 * g[:, 1:] + 0.1 * rng.normal(size=(1, 3))
    mean, middle = g @ rng.normal(size=(2, 3)), HostRoot(np.ones((1, 1, 3)), None)
    structure = Structure([0, 1], np.arange(2, 5)[:, None], "arrowhead")

    def coordinates(units):
        map = fitted(structure, g * units, mean, np.exp(log_std), middle)
        return map.inverse(np.column_stack([at * units, own]))

    expected = coordinates(np.ones(2))
    np.testing.assert_allclose(coordinates(np.array([30.0, 0.05])), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3])
def test_roots_of_chains_are_those_of_dense_matrices(size):
    rng, n = np.random.default_rng(0), 5
    diagonal = np.tril(rng.normal(size=(n, size, size))) + 2 * np.eye(size)
    tie = rng.normal(size=(n - 1, size, size))
    left = np.eye(n * size)
    for i in range(1, n):
        left[i * size : (i + 1) * size, (i - 1) * size : i * size] = -tie[i - 1]
    dense = np.linalg.solve(left, block_diag(*diagonal))
    root = HostRoot(np.moveaxis(diagonal, 0, 2), np.moveaxis(tie, 0, 2))
    vectors = rng.normal(size=(4, size, n))

    def flat(x):
        return np.swapaxes(x, -2, -1).reshape(*x.shape[:-2], -1)

    np.testing.assert_allclose(flat(root.times(vectors)), flat(vectors) @ dense.T, rtol=1e-10)
    np.testing.assert_allclose(flat(root.transposed_times(vectors)), flat(vectors) @ dense, rtol=1e-10)
    np.testing.assert_allclose(root.solve(root.times(vectors)), vectors, rtol=1e-9)
    np.testing.assert_allclose(flat(root.std()), np.sqrt(np.sum(dense**2, axis=1)), rtol=1e-10)


def test_blocks_that_have_settled_do_not_hold_up_the_others():
    """In single precision a settled block moves by its rounding, which is no failure of its step."""
    calls = []

    class Counting(NestedLaplace):
        def step(self, g, x):
            jax.debug.callback(lambda: calls.append(1))
            return super().step(g, x)

    def log_density(z):
        tosses = jnp.arange(200) % 10
        odds = tosses * jax.nn.log_sigmoid(z[2:]) + (10 - tosses) * jax.nn.log_sigmoid(-z[2:])
        prior = -0.5 * jnp.sum(((z[2:] - z[0]) * jnp.exp(-z[1])) ** 2) - 200 * z[1]
        return prior + jnp.sum(odds) - 0.5 * jnp.sum(z[:2] ** 2)

    target = Target.from_logdensity(log_density, dim=202)
    structure = Structure([0, 1], np.arange(2, 202)[:, None], "arrowhead")
    nested = Counting.begin(target, structure, np.zeros((1, 200), np.float32))
    solve = jax.jit(lambda g: nested.solve(g, 40).x)
    for g in np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32):
        calls.clear()
        solve(g).block_until_ready()
        jax.effects_barrier()
        # Newton steps double digits: some to come near, and three for seven digits.
        assert 0 < len(calls) <= 12


def test_steps_to_and_fro_are_shortened():
    """From 1 whole Newton steps lead to -1 and back for ever, though the density is log-concave."""

    def log_density(z):
        x = z[1:]
        return -0.5 * z[0] ** 2 - jnp.sum(5.75 * x**2 - 1.25 * x**4 + 0.25 * x**6)

    target = Target.from_logdensity(log_density, dim=4)
    structure = Structure([0], np.arange(1, 4)[:, None], "arrowhead")
    nested = NestedLaplace.begin(target, structure, np.array([[1.0, -1.0, 0.2]]))
    found = jax.jit(lambda g: nested.solve(g).x)(np.zeros(1))
    np.testing.assert_allclose(found, 0.0, atol=1e-6)
