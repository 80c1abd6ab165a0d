"""Gradients of the log likelihood: exact where theory says so, unbiased where claimed, else declared."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from energies import Normal, Rbm
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, assert_same, excess, replicate

from quietgrad.energy import (
    MOVES,
    REGISTRY,
    Jarzynski,
    Langevin,
    Mala,
    MaximumLikelihood,
    SteinWeighting,
)
from quietgrad.energy.moves import moved, placed
from quietgrad.energy.problem import problem_of
from quietgrad.estimators.weights import LeastSquares, Ridge

PRECISIONS = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])


@eqx.filter_jit
def gradient(method, made, key, x=None):
    """One step's gradient of a problem, from chains at `x` or where the method begins."""
    problem, params = made
    key_init, key_step = jr.split(key)
    state = method.init(problem, params, key=key_init)
    if x is not None:
        state = dataclasses.replace(state, x=x)
    return method.step(problem, params, problem.data, state, key=key_step)[0]


def exact(energy, data):
    return jax.jit(jax.grad(lambda energy, data: -energy.log_likelihood(data)))(energy, data)


@pytest.mark.turns(2)
@PRECISIONS
@pytest.mark.parametrize("start", ["persistent", "rows", "noise"])
def test_second_order_is_exact_for_a_gaussian_energy(start, dtype, key):
    """Wherever the chains are, after one move."""
    keys = jr.split(key, 4)
    energy = Normal(jr.normal(keys[0], (3,)), jnp.eye(3) + 0.3 * jr.normal(keys[1], (3, 3)))
    energy = jax.tree.map(lambda x: x.astype(dtype), energy)
    data = 2 * jr.normal(keys[2], (50, 3), dtype) + 1
    weighting = SteinWeighting(2, solver=LeastSquares())
    method = MaximumLikelihood(start, moves=1, chains=40, weighting=weighting)
    made = problem_of(energy, data)
    found = gradient(method, made, keys[3])
    expected = exact(energy, data)
    # Weighted sums of squares of points, some of which are tens, and a fit with a condition of as much.
    assert_same(found, expected, operations=100, scale=100.0)
    plain = gradient(MaximumLikelihood(start, moves=1, chains=40), made, keys[3])
    gap = ravel_pytree(plain)[0] - ravel_pytree(expected)[0]
    assert jnp.max(jnp.abs(gap)) > 0.1


ENERGY = Rbm.init(2, 3, size=0.8, key=jr.key(1))
DATA = Rbm.init(2, 3, size=0.8, key=jr.key(2)).sample(jr.key(3), 200)
# Chains that are draws of p stay draws of p by these, and weights know nothing of what they weigh.
UNBIASED = {
    "pcd": MaximumLikelihood(moves=1, chains=12),
    "stein, cross-fitted": MaximumLikelihood(
        moves=1, chains=12, weighting=SteinWeighting(1, folds="k-fold", scaling="none")
    ),
    "order 2, cross-fitted": MaximumLikelihood(
        moves=1,
        chains=12,
        weighting=SteinWeighting(2, solver=Ridge(0.5), folds="k-fold", scaling="none"),
    ),
}
BIASED = {
    "cd": MaximumLikelihood("rows", moves=1, chains=12),
    "noise": MaximumLikelihood("noise", moves=1, chains=12),
    "langevin": MaximumLikelihood(move=Langevin(accept=0.6), moves=40, chains=12),
    "stein": MaximumLikelihood(moves=1, chains=12, weighting=SteinWeighting()),
    "score-matching": REGISTRY["score-matching"](),
    "jarzynski": Jarzynski(chains=12),
}


def replicated(method, key):
    """Gradients from chains that are independent draws of p."""

    def once(key):
        key_x, key = jr.split(key)
        x = ENERGY.sample(key_x, 12) if isinstance(method, MaximumLikelihood) else None
        return ravel_pytree(gradient(method, made, key, x))[0]

    made = problem_of(ENERGY, DATA)
    return replicate(once, 20_000, key)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", UNBIASED)
def test_what_claims_to_be_unbiased_is(name, key):
    assert not UNBIASED[name].biased
    assert_mean(replicated(UNBIASED[name], key), ravel_pytree(exact(ENERGY, DATA))[0])


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", BIASED)
def test_what_declares_a_bias_has_one(name, key):
    assert BIASED[name].biased
    worst = np.max(excess(replicated(BIASED[name], key), ravel_pytree(exact(ENERGY, DATA))[0]))
    assert worst > 6


def test_every_method_is_there():
    assert {"stein", "cd", "pcd", "jarzynski", "score-matching"} == set(REGISTRY)
    for name in ("cd", "score-matching", "jarzynski", "stein"):
        assert REGISTRY[name]().biased
    assert not REGISTRY["pcd"]().biased


@pytest.mark.turns(2)
@pytest.mark.parametrize(("order", "share"), [(1, 0.4), (2, 0.15)])
def test_stein_weights_take_noise_away(order, share, key):
    """Ten coordinates, 400 exact draws: some 0.18 and 0.06 are usual for random machines."""
    energy = Rbm.init(10, 6, size=0.5, key=key)
    truth = ravel_pytree(exact(energy, jnp.zeros((2, 10))))[0]
    made = problem_of(energy, jnp.zeros((2, 10)))
    methods = [
        MaximumLikelihood(moves=1, chains=400, weighting=w) for w in (SteinWeighting(order), None)
    ]

    def once(key):
        x = energy.sample(key, 400)
        found = [gradient(method, made, key, x) for method in methods]
        return jnp.stack([jnp.sum((ravel_pytree(g)[0] - truth) ** 2) for g in found])

    ours, plain = np.mean(replicate(once, 100, key), axis=0)
    assert ours < share * plain


@pytest.mark.slow
def test_stein_weights_mend_chains_that_have_not_arrived(key):
    """Twenty steps from N(0, I): the plain mean is biased, the weighted one hardly."""
    energy = Rbm.init(10, 6, size=0.5, key=key)
    data = jr.normal(key, (100, 10))
    truth, made = ravel_pytree(exact(energy, data))[0], problem_of(energy, data)
    methods = [MaximumLikelihood("noise", Langevin(), 20, 400, w) for w in (SteinWeighting(2), None)]

    def once(key):
        found = [gradient(method, made, key) for method in methods]
        return jnp.stack([jnp.sum((ravel_pytree(g)[0] - truth) ** 2) for g in found])

    ours, plain = np.mean(replicate(once, 20, key), axis=0)
    assert ours < 0.1 * plain


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", MOVES)
def test_adjusted_moves_leave_the_density_as_it_is(name, key):
    move, scale = MOVES[name](), jnp.ones(2)
    problem, params = problem_of(ENERGY, DATA)

    def once(key):
        key_x, key_move = jr.split(key)
        chains = placed(problem.model, params, ENERGY.sample(key_x, 8), jnp.log(1.2))
        after, accepted = moved(move, problem.model, params, chains, scale, 5, adapt=False, key=key_move)
        return jnp.concatenate([jnp.mean(after.x, axis=0), jnp.mean(after.x**2, axis=0), accepted[None]])

    found = replicate(once, 10_000, key)[:, :4]
    mass, mean = ENERGY.parts()
    share = jax.nn.softmax(mass)
    truth = jnp.concatenate([share @ mean, share @ mean**2 + 1])
    if move.adjusted:
        assert_mean(found, truth)
    else:
        assert np.max(excess(found, truth)) > 6


@pytest.mark.turns(2)
@pytest.mark.parametrize("move", [Mala(), Langevin()], ids=["mala", "langevin"])
def test_steps_are_adapted(move, key):
    problem, params = problem_of(ENERGY, DATA)
    chains = placed(problem.model, params, jnp.zeros((200, 2)), jnp.log(1e-3))
    chains, _ = moved(move, problem.model, params, chains, jnp.ones(2), 500, adapt=True, key=key)
    _, accepted = moved(move, problem.model, params, chains, jnp.ones(2), 50, adapt=False, key=key)
    # 200 chains a move, and a step size that goes on by a twentieth of what is missing.
    assert abs(accepted - move.accept) < 0.05


@pytest.mark.parametrize("move", [Mala(), Langevin()], ids=["mala", "langevin"])
def test_moves_to_where_there_is_no_energy_are_not_made(move, key):
    def half(params, x):
        return params * jnp.sum(jnp.log(x) ** 2)

    problem, params = problem_of((jnp.ones(()), half), jnp.ones((4, 2)))
    chains = placed(problem.model, params, jnp.full((50, 2), 0.1), jnp.log(1.0))
    after, _ = moved(move, problem.model, params, chains, jnp.ones(2), 20, adapt=False, key=key)
    assert jnp.all(jnp.isfinite(after.x)) & jnp.all(jnp.isfinite(after.energy))
    assert jnp.all(after.x > 0)


def test_jarzynskis_weights_follow_the_normalising_constant(key):
    """The mean weight is Z in mean, for whatever path of the parameters, here three steps long."""
    method = Jarzynski(chains=8, step=0.5, resample=0.0)
    end = jax.tree.map(lambda x: x + 0.2, ENERGY)
    problem, params = problem_of(ENERGY, DATA)
    last = problem_of(end, DATA)[1]

    def between(share):
        return jax.tree.map(lambda a, b: (1 - share) * a + share * b, params, last)

    def once(key):
        state = method.init(problem, params, key=key)
        for number, share in enumerate((0.3, 0.7, 1.0)):
            key_step = jr.fold_in(key, number)
            _, _, state = method.step(problem, between(share), problem.data, state, key=key_step)
        return jnp.exp(method.log_z(state) - end.log_z())

    assert_mean(replicate(once, 20_000, key), 1.0)


@pytest.mark.slow
def test_walkers_are_drawn_anew_without_a_change_of_the_estimate(key):
    """Resampling keeps the mean weight, and the walkers' mean but for its noise."""
    method = Jarzynski(chains=400, resample=1.0)
    problem, params = problem_of(ENERGY, DATA)
    state = method.init(problem, params, key=key)
    before = method.log_z(state)
    _, info, after = method.step(problem, params, problem.data, state, key=key)
    assert jnp.all(after.log_weight == 0)
    assert info.size < 400
    # One step of some 0.2 deviations leaves the estimate where it was, but for its noise.
    assert abs(method.log_z(after) - before) < 0.2


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="start must be one of persistent, rows, noise; got 'data'"):
        MaximumLikelihood("data")
    with pytest.raises(ValueError, match="unknown move 'hmc'; known: langevin, mala"):
        MaximumLikelihood(move="hmc")
    with pytest.raises(ValueError, match="chains must be a whole number of at least 2"):
        MaximumLikelihood(chains=1)
    with pytest.raises(ValueError, match="step must be positive"):
        Jarzynski(step=0.0)
    with pytest.raises(ValueError, match="noise must be positive"):
        REGISTRY["score-matching"](noise=-1.0)
