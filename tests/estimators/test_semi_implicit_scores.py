"""Scores of semi-implicit families: exact for linear generators, unbiased where that is claimed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, assert_same, excess

from quietgrad.estimators.scores import (
    REGISTRY,
    ChainMean,
    HmcChain,
    LinearisedImportance,
    SharedImportance,
    SteinByDimension,
    SteinChain,
    SteinLinearised,
    SteinShared,
)
from quietgrad.estimators.scores.stein import Weighting
from quietgrad.estimators.weights import LeastSquares, Ridge
from quietgrad.families.semi_implicit import Generator, Proposal


def generator_of(dim, mixing, *, bend, std=0.5):
    """A generator with a full linear part and, with `bend`, a network that matters."""
    made = Generator.init(dim, mixing, (8,), 0.5, key=jr.key(0))
    rng = np.random.default_rng(1)
    scale = bend * np.concatenate([np.ones((dim, 1)), 0.3 * np.ones((dim, 1))])
    parts = (
        jnp.asarray(rng.normal(size=(dim, mixing)) / np.sqrt(mixing)),
        jnp.asarray(rng.normal(size=dim)),
        jnp.full(dim, np.log(std)),
        jnp.asarray(scale * rng.normal(size=(2 * dim, 8))),
    )
    return eqx.tree_at(lambda g: (g.linear, g.shift, g.log_std, g.out), made, parts)


def gaussian_score(generator, w):
    """That of N(b, A A' + D^2), which a linear generator has."""
    covariance = generator.linear @ generator.linear.T + jnp.diag(jnp.exp(2 * generator.log_std))
    return -jnp.linalg.solve(covariance, (w - generator.shift[None, :]).T).T


@pytest.mark.turns(3)
@pytest.mark.parametrize(("dim", "mixing"), [(1, 1), (3, 5), (22, 10)])
def test_first_order_is_exact_for_a_linear_generator_from_any_points(dim, mixing):
    """k + 1 points, far from where q(eps | w) has its mass."""
    generator = generator_of(dim, mixing, bend=0.0)
    rng = np.random.default_rng(2)
    w = jnp.asarray(rng.normal(size=(4, dim)))
    eps = jnp.asarray(3 + 2 * rng.normal(size=(4, mixing + 1, mixing)))
    weighting = Weighting(solver=LeastSquares())

    def one(w, eps):
        t = jax.vmap(lambda x: generator.reverse_score(w, x))(eps)
        return weighting.score(generator, w, eps, t)

    found = jax.jit(jax.vmap(one))(w, eps)
    # Points in general position have a condition number of some hundreds, which is squared in the solve.
    np.testing.assert_allclose(found, gaussian_score(generator, w), rtol=1e-7, atol=1e-7)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("kind", [SteinChain, SteinLinearised])
def test_stein_scores_of_a_linear_generator_are_exact_but_for_the_penalty(kind, dtype):
    generator = jax.tree.map(lambda x: x.astype(dtype), generator_of(6, 3, bend=0.0))
    score = kind(weighting=Weighting(solver=Ridge(1e-6)))
    eps, u = jr.normal(jr.key(3), (5, 3), dtype), jr.normal(jr.key(4), (5, 6), dtype)
    w = generator.shift[None, :] + eps @ generator.linear.T + jnp.exp(generator.log_std)[None, :] * u
    found, _ = eqx.filter_jit(score)(generator, w, eps, score.init(generator), key=jr.key(5))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, gaussian_score(generator, w), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("nodes", [8, 64])
@pytest.mark.parametrize("order", [1, 2])
def test_shared_nodes_are_exact_for_a_linear_generator(nodes, order):
    """Whatever masses the nodes have: the score is linear in eps, and so are the columns."""
    generator = generator_of(6, 2, bend=0.0, std=1.0)
    eps, u = jr.normal(jr.key(3), (5, 2)), jr.normal(jr.key(4), (5, 6))
    w = generator.shift[None, :] + eps @ generator.linear.T + jnp.exp(generator.log_std)[None, :] * u
    score = SteinShared(nodes, order=order, penalty=1e-12)
    found, _ = eqx.filter_jit(score)(generator, w, eps, None, key=jr.key(5))
    np.testing.assert_allclose(found, gaussian_score(generator, w), rtol=1e-4, atol=1e-4)


def test_a_point_that_no_shared_node_reaches_has_the_score_of_the_eps_that_made_it():
    """Without it, the nearest of nodes that are all far away pulls with all its weight."""
    generator = generator_of(3, 2, bend=0.5, std=1e-3)
    eps = jr.normal(jr.key(3), (4, 2))
    w = jax.vmap(generator)(eps)[0] + 1e-3 * jr.normal(jr.key(4), (4, 3))
    found, _ = SteinShared(16)(generator, w, eps, None, key=jr.key(5))
    alone = jax.vmap(generator.conditional_score)(w, eps)
    np.testing.assert_allclose(found, alone, rtol=1e-6)


def test_weights_take_error_from_shared_nodes():
    """Of the same number of nodes, on a network that bends, with a wide margin."""
    generator = generator_of(3, 2, bend=0.3)
    eps, u = jr.normal(jr.key(9), (64, 2)), jr.normal(jr.key(10), (64, 3))
    mean, log_std = jax.vmap(generator)(eps)
    w = mean + jnp.exp(log_std) * u
    truth = eqx.filter_jit(SharedImportance(100_000))(generator, w, eps, None, key=jr.key(1))[0]
    plain, weighted = (
        np.mean((eqx.filter_jit(score)(generator, w, eps, None, key=jr.key(2))[0] - truth) ** 2)
        for score in (SharedImportance(256), SteinShared(256))
    )
    assert weighted < 0.5 * plain


@pytest.mark.turns(2)
@pytest.mark.parametrize(("mixing", "kind"), [(1, SteinShared), (3, SteinShared), (4, SteinChain)])
def test_points_suit_the_dimension_of_eps(mixing, kind):
    """The score, its state and its cost are those of the part."""
    generator, score = generator_of(4, mixing, bend=0.5), SteinByDimension()
    part = kind()
    eps = jr.normal(jr.key(3), (2, mixing))
    w = jax.vmap(generator)(eps)[0]
    state = part.init(generator)
    assert_same(score.init(generator), state, operations=10) if state is not None else None
    found, _ = eqx.filter_jit(score)(generator, w, eps, score.init(generator), key=jr.key(5))
    run = eqx.filter_jit(part)
    np.testing.assert_allclose(found, run(generator, w, eps, state, key=jr.key(5))[0])
    assert score.gradients(mixing) == part.gradients(mixing)


class Counting(Weighting):
    """Weights that tell how many points they were given."""

    seen: list[int] = eqx.field(static=True, default_factory=list)

    def score(self, generator, w, eps, t):
        self.seen.append(eps.shape[0])
        return super().score(generator, w, eps, t)


@pytest.mark.parametrize("points", [4, 10])
def test_linearised_scores_take_as_many_points_as_they_say(points):
    generator, weighting = generator_of(2, 1, bend=1.0), Counting()
    score = SteinLinearised(points=points, weighting=weighting)
    eps, w = jnp.zeros((3, 1)), jnp.zeros((3, 2))
    jax.eval_shape(lambda: score(generator, w, eps, None, key=jr.key(0)))
    assert weighting.seen == [points]
    # The others are of the Jacobians on the way to the mode.
    assert score.gradients(1) - SteinLinearised(points=2).gradients(1) == points - 2


def grid_posterior(generator, w):
    """q(eps | w) of a one-dimensional eps on a fine grid, and the score by quadrature."""
    grid = jnp.linspace(-7, 7, 4001)[:, None]
    log_joint = jax.vmap(lambda eps: generator.log_joint(w, eps))(grid)
    weights = jax.nn.softmax(log_joint)
    return grid, weights, weights @ jax.vmap(lambda eps: generator.conditional_score(w, eps))(grid)


def replications(score, generator, w, count):
    """Estimates for draws of eps given w, with a step size that has been adapted before."""
    grid, weights, truth = grid_posterior(generator, w)
    eps = grid[jr.choice(jr.key(6), grid.shape[0], (count,), p=weights)]
    state = score.init(generator)
    every = jnp.broadcast_to(w[None, :], (count, w.shape[0]))
    run = eqx.filter_jit(score)
    for number in range(10 if state is not None else 1):
        _, state = run(generator, every[:200], eps[:200], state, key=jr.fold_in(jr.key(7), number))
    return run(generator, every, eps, state, key=jr.key(8))[0], truth


def test_a_chain_from_the_draw_is_unbiased_given_the_point():
    generator = generator_of(2, 1, bend=1.0)
    w = generator.shift + jnp.asarray([0.7, -0.4])
    score = ChainMean(HmcChain(burn_in=1, states=2, leapfrogs=2))
    assert not score.biased
    found, truth = replications(score, generator, w, 20_000)
    # Draws on the grid are off by half a cell, 0.002, at slopes of some tens at most.
    assert_mean(np.asarray(found), np.asarray(truth), slack=0.02)


@pytest.mark.parametrize("name", REGISTRY)
def test_only_scores_at_states_of_a_chain_are_unbiased(name):
    """Weights that are fitted to the points, or shared out among few of them, favour some."""
    score = REGISTRY[name]()
    assert score.biased is not isinstance(score, ChainMean)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "score",
    [
        SteinChain(HmcChain(burn_in=1, states=2, leapfrogs=2)),
        SharedImportance(nodes=4),
        LinearisedImportance(Proposal(nodes=4)),
        SteinLinearised(points=4),
        SteinShared(nodes=4),
    ],
    ids=lambda score: type(score).__name__,
)
def test_what_declares_a_bias_has_one(score):
    generator = generator_of(2, 1, bend=1.0)
    w = generator.shift + jnp.asarray([0.7, -0.4])
    assert score.biased
    found, truth = replications(score, generator, w, 20_000)
    assert np.max(excess(np.asarray(found), np.asarray(truth), slack=0.02)) > 5


@pytest.mark.slow
def test_stein_weights_take_most_of_the_error_of_a_chain():
    """At equal gradients, on a network that bends: the claim of the docs, with a wide margin."""
    generator = generator_of(8, 4, bend=0.3)
    eps, u = jr.normal(jr.key(9), (64, 4)), jr.normal(jr.key(10), (64, 8))
    mean, log_std = jax.vmap(generator)(eps)
    w = mean + jnp.exp(log_std) * u
    truth = score_of(SteinChain(HmcChain(5, 100, 5)), generator, w, eps)
    errors = {
        kind: np.mean((score_of(kind(), generator, w, eps) - truth) ** 2)
        for kind in (ChainMean, SteinChain)
    }
    assert errors[SteinChain] < 0.25 * errors[ChainMean]


def score_of(score, generator, w, eps):
    state, run, found = score.init(generator), eqx.filter_jit(score), None
    for number in range(20):
        found, state = run(generator, w, eps, state, key=jr.fold_in(jr.key(11), number))
    return np.asarray(found)


@pytest.mark.slow
def test_step_size_is_adapted_to_the_acceptance():
    generator = generator_of(4, 2, bend=0.3)
    eps = jr.normal(jr.key(12), (32, 2))
    w = jax.vmap(generator)(eps)[0]
    score, run = ChainMean(), eqx.filter_jit(ChainMean())
    for start in (-6.0, 2.0):
        state = jnp.asarray(start)
        for number in range(80):
            _, state = run(generator, w, eps, state, key=jr.fold_in(jr.key(13), number))
        chain = eqx.filter_jit(
            lambda w, eps, key, state=state: jax.vmap(
                lambda w, eps, key: score.chain(generator, w, eps, state, key=key).accepted
            )(w, eps, jr.split(key, 32))
        )
        assert abs(float(jnp.mean(chain(w, eps, jr.key(14)))) - 0.9) < 0.06


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", REGISTRY)
def test_points_do_not_depend_on_each_other(name):
    """A batch of points is a loop over them, but for keys and what is shared."""
    generator = generator_of(3, 2, bend=0.5)
    eps = jr.normal(jr.key(15), (3, 2))
    w = jax.vmap(generator)(eps)[0]
    score = REGISTRY[name]()
    found, _ = eqx.filter_jit(score)(generator, w, eps, score.init(generator), key=jr.key(16))
    assert found.shape == (3, 3)
    moved, _ = eqx.filter_jit(score)(
        generator, w.at[2].add(1.0), eps, score.init(generator), key=jr.key(16)
    )
    assert_same(moved[:2], found[:2], operations=1e4)
