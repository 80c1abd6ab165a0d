"""All points of the moves, with the masses of Metropolis' rule: unbiased, and enough for order 2."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from energies import Normal, Rbm
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, assert_same, excess, replicate

from quietgrad.energy import REGISTRY, Langevin, Mala, MaximumLikelihood, SteinWeighting
from quietgrad.energy.moves import placed, recycled
from quietgrad.energy.problem import problem_of
from quietgrad.estimators.weights import Gaussian, LeastSquares, Ridge, stein_weights

SMALL = Rbm.init(2, 3, size=0.8, key=jr.key(1))
DATA = np.asarray(Rbm.init(2, 3, size=0.8, key=jr.key(2)).sample(jr.key(3), 200))


def points_of(energy, data, x, count, key, *, move=None, step=1.2):
    """All points of `count` moves from `x`, and where the chains ended."""
    problem, params = problem_of(energy, data)
    move = Mala() if move is None else move
    chains = placed(problem.model, params, x, jnp.log(step))
    return recycled(move, problem.model, params, chains, problem.scale, count, adapt=False, key=key)


@eqx.filter_jit
def gradient(method, made, x, key):
    problem, params = made
    state = method.init(problem, params, key=key)
    # The step size that adaptation ends at, about, for coordinates that vary by one.
    state = eqx.tree_at(lambda s: (s.x, s.log_step), state, (x, jnp.zeros((), x.dtype)))
    return ravel_pytree(method.step(problem, params, problem.data, state, key=key)[0])[0]


def test_masses_are_those_of_the_steps_that_could_have_been(key):
    """Chain by chain: where it was before each move, and what it was offered."""
    chains, count = 6, 4
    x = SMALL.sample(key, chains)
    after, _, points = points_of(SMALL, DATA, x, count, key)
    place, mass = (np.asarray(a).reshape(count + 1, chains, -1) for a in (points.x, points.mass))
    assert_same(mass.sum(), 1.0, operations=100)
    slopes = jax.vmap(jax.grad(lambda x: SMALL(x)))(points.x)
    assert_same(points.slope, slopes, operations=100)
    assert np.all(mass[1:] > 0)
    for number in range(chains):
        # Each move gives 1 / (moves x chains) to two points, one of which is where the chain was.
        own = mass[:, number, 0] * count * chains
        assert_same(own.sum(), float(count), operations=100)
        ended = np.flatnonzero(np.all(place[:, number] == np.asarray(after.x)[number], axis=1))
        assert ended.size == 1
        # What no chain went to has no more than the chance of going there.
        assert own[0] <= count


def test_recycled_means_are_unbiased(key):
    """Plain masses for draws of p; the same points with equal masses are not draws of p."""
    problem, params = problem_of(SMALL, DATA)
    move = Mala()
    share = jax.nn.softmax(SMALL.parts()[0])
    mean = SMALL.parts()[1]
    truth = jnp.concatenate([share @ mean, share @ mean**2 + 1])

    def once(key):
        key_x, key_move = jr.split(key)
        chains = placed(problem.model, params, SMALL.sample(key_x, 8), jnp.log(1.6))
        run = move, problem.model, params, chains, problem.scale, 3
        points = recycled(*run, adapt=False, key=key_move)[2]
        g = jnp.concatenate([points.x, points.x**2], axis=1)
        return jnp.concatenate([points.mass @ g, jnp.mean(g, axis=0)])

    found = replicate(once, 10_000, key)
    assert_mean(found[:, :4], truth)
    assert np.max(excess(found[:, 4:], truth)) > 6


@pytest.mark.parametrize("move", [Mala(), Langevin()], ids=["mala", "langevin"])
def test_points_without_energy_have_no_mass(move, key):
    def half(params, x):
        return params * jnp.sum(jnp.log(x) ** 2)

    x = jnp.full((50, 2), 0.1)
    _, _, points = points_of((jnp.ones(()), half), jnp.ones((4, 2)), x, 10, key, move=move, step=1.0)
    assert jnp.all(points.x > 0)
    assert jnp.all(jnp.isfinite(points.slope))
    w = SteinWeighting(1)(points.x, -points.slope, points.mass)
    assert jnp.all(jnp.isfinite(w))
    assert jnp.all(jnp.where(points.mass == 0, w, 0) == 0)


@pytest.mark.turns(2)
@pytest.mark.parametrize("scaling", ["none", "diagonal", "whiten"])
@pytest.mark.parametrize("points", [5, 60], ids=["gram", "columns"])
@pytest.mark.parametrize("kernel", ["polynomial", Gaussian()], ids=["polynomial", "functionals"])
def test_equal_masses_give_stein_weights(kernel, points, scaling, key):
    x = SMALL.sample(key, points)
    scores = -jax.vmap(jax.grad(lambda x: SMALL(x)))(x)
    order = 2 if kernel == "polynomial" else 1
    rule = SteinWeighting(order, kernel=kernel, solver=Ridge(0.1), scaling=scaling)
    found = rule(x, scores, jnp.full(points, 1 / points))
    expected = stein_weights(x, scores, order=order, kernel=kernel, solver=Ridge(0.1), scaling=scaling)
    assert_same(found, expected, operations=10_000)


def test_masses_count_as_points_do(key):
    """A point with twice the mass is two points."""
    x = SMALL.sample(key, 30)
    scores = -jax.vmap(jax.grad(lambda x: SMALL(x)))(x)
    mass = jnp.where(jnp.arange(30) < 10, 2.0, 1.0) / 40
    # The penalty is relative to the effective number of points, which differs: none to speak of.
    rule = SteinWeighting(2, solver=Ridge(1e-12))
    found = rule(x, scores, mass)
    twice = jnp.concatenate([jnp.arange(30), jnp.arange(10)])
    expected = rule(x[twice], scores[twice], jnp.full(40, 1 / 40))
    assert_same(found[:10], expected[:10] + expected[30:], operations=1e6)
    assert_same(found[10:], expected[10:30], operations=1e6)


def test_second_order_is_exact_for_a_gaussian_energy_from_few_chains(key):
    """Twelve chains far from p, four moves each: points, most of them refused, for 5 columns."""
    keys = jr.split(key, 4)
    energy = Normal(jr.normal(keys[0], (2,)), jnp.eye(2) + 0.3 * jr.normal(keys[1], (2, 2)))
    data = np.asarray(2 * jr.normal(keys[2], (50, 2)) + 1)
    rule = SteinWeighting(2, solver=Ridge(1e-13))
    method = MaximumLikelihood(moves=4, chains=12, weighting=rule, recycle=True)
    x = 3 + jr.normal(keys[3], (12, 2))
    found = gradient(method, problem_of(energy, data), x, key)
    expected = ravel_pytree(jax.grad(lambda e: -e.log_likelihood(data))(energy))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.turns(2)
def test_twice_as_many_chains_as_dimensions_are_enough_for_order_2(key):
    """An RBM in ten dimensions, 20 chains that are draws of p: a quarter of the plain mean's error."""
    energy = Rbm.init(10, 6, size=0.5, key=key)
    data = np.asarray(energy.sample(key, 500))
    made = problem_of(energy, data)
    truth = ravel_pytree(jax.grad(lambda e: -e.log_likelihood(data))(energy))[0]
    methods = [REGISTRY[name](chains=20) for name in ("stein", "pcd")]

    def once(key):
        x = energy.sample(key, 20)
        return jnp.stack([jnp.sum((gradient(m, made, x, key) - truth) ** 2) for m in methods])

    ours, plain = np.mean(replicate(once, 100, key), axis=0)
    assert ours < 0.25 * plain


def test_what_cannot_be_weighted_is_refused():
    with pytest.raises(ValueError, match="weighted in-sample by ridge"):
        MaximumLikelihood(weighting=SteinWeighting(folds="k-fold"), recycle=True)
    # The preset uses the ends of the chains where their points cannot be weighted.
    assert not REGISTRY["stein"](weighting=SteinWeighting(2, solver=LeastSquares())).recycle
    assert REGISTRY["stein"]().recycle
