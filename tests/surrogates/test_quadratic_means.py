"""The learned quadratic: its matrices, its closed-form mean, and the mean from further draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from literal import bent_target
from oracles import assert_mean, assert_same, replicate
from subjects import EXACT, FLOWS, family, other_bases

from quietgrad import families
from quietgrad.estimators import Pathwise
from quietgrad.estimators.control_variates.control_variate import pull_each
from quietgrad.estimators.surrogates import LaggedBeta, QuadCV, Quadratic, QuadraticFlow
from quietgrad.estimators.surrogates.quadcv import Symmetric, Unsymmetrised, model
from quietgrad.families import HasMoments, HasPathMetric, split

LOCATION_SCALE = [name for name, cls in families.REGISTRY.items() if issubclass(cls, HasMoments)]
# Every location-scale family on its own base, and on the others where it takes them.
ON_BASES = [(name, None) for name in LOCATION_SCALE] + [
    (name, base) for name in LOCATION_SCALE for base in other_bases(name)
]


def quadratic(dim, rank, key):
    """Coefficients of order one, so that no part of B is negligible."""
    keys = jr.split(key, 4)
    shapes = [(dim,), (dim,), (dim, rank), (dim, rank)]
    linear, diagonal, left, right = map(jr.normal, keys, shapes)
    return model.Coefficients(linear, diagonal, jnp.stack([left.T, right.T]), jnp.asarray(0.3))


def dense(v):
    """diag(D) + U V' times exp(s), as a matrix."""
    return np.exp(v.log_scale) * (np.diag(v.diagonal) + np.asarray(v.left) @ np.asarray(v.right).T)


@pytest.mark.turns(3)
@pytest.mark.parametrize(("name", "base"), ON_BASES)
def test_closed_form_mean_is_the_monte_carlo_mean(name, base, key):
    """grad_lambda E f~ against the average of per-draw gradients J'(b + B (z - z0))."""
    q, key_v, key_draws = family(name, 3, base), *jr.split(key)
    v = quadratic(3, 2, key_v)

    @eqx.filter_jit
    def both(q, v, e):
        params, rebuild = split(q)
        mean = jax.grad(lambda p: model.mean_value(v, rebuild(p)))(params)  # pyright: ignore
        offset = jax.vmap(q.transport)(e) - q.mean()[None, :]
        return pull_each(q, e, model.slope(v, offset)), ravel_pytree(mean)[0]

    per_draw, mean = both(q, v, q.base.sample((20_000, q.base_dim), q.dtype, key=key_draws))
    assert_mean(per_draw, np.asarray(mean))


def test_control_variate_and_fit_see_their_matrices(key):
    """The control variate uses the symmetric part; only the unsymmetrised fit sees diag(D) + U V'."""
    v, offset = quadratic(4, 2, key), np.asarray(jr.normal(jr.fold_in(key, 1), (5, 4)))
    whole, linear = dense(v), np.asarray(v.linear)
    symmetric = linear + offset @ (whole + whole.T) / 2
    faithful = linear + offset @ whole.T
    points = jnp.asarray(offset)
    assert_same(model.slope(v, points), symmetric, operations=20)
    assert_same(Symmetric().fitted(v, points), symmetric, operations=20)
    assert_same(Unsymmetrised().fitted(v, points), faithful, operations=20)
    assert np.max(np.abs(whole - whole.T)) > 0.1


@pytest.mark.turns(2)
@pytest.mark.parametrize("curvature", [Symmetric(), Unsymmetrised()], ids=["symmetric", "faithful"])
def test_learning_descends_on_the_mean_squared_error_of_the_fit(curvature, key):
    keys = jr.split(key, 3)
    v = quadratic(3, 1, keys[0])
    offset, goal = (jr.normal(k, (6, 3)) for k in keys[1:])
    rule = optax.sgd(1e-3)
    learned, _ = model.learn(v, rule.init(v), rule, curvature, offset, goal)

    def loss(v):
        return jnp.mean(jnp.sum((curvature.fitted(v, offset) - goal) ** 2, axis=1))

    expected = jax.tree.map(lambda x, g: x - 1e-3 * g, v, jax.grad(loss)(v))
    assert_same(learned, expected, operations=50)


def test_symmetric_fit_is_the_better_one(key):
    """With one factor for a dense Hessian the faithful fit spends it on a matrix that is not used."""
    key_hessian, key_draws = jr.split(key)
    root = jr.normal(key_hessian, (4, 4))
    hessian = -root @ root.T - jnp.eye(4)
    rule, offset = optax.adam(1e-2), jr.normal(key_draws, (64, 4))
    goal = offset @ hessian

    @eqx.filter_jit
    def error(curvature):
        def step(carry, _):
            v, memory = carry
            return model.learn(v, memory, rule, curvature, offset, goal), None

        v = model.start(4, 1, float, 0)
        (v, _), _ = jax.lax.scan(step, (v, rule.init(v)), None, length=3000)
        return jnp.mean((model.slope(v, offset) - goal) ** 2)

    assert error(Symmetric()) <= error(Unsymmetrised())


# The surrogate sees of a flow what it sees of another: points and pull backs.
@pytest.mark.turns(3, first=2)
@pytest.mark.parametrize(
    ("name", "per_block"),
    [
        *(
            pytest.param(name, False, marks=pytest.mark.slow if name in FLOWS[1:] else ())
            for name in EXACT
        ),
        ("full-rank", True),
    ],
)
def test_mean_from_further_draws_is_unbiased(name, per_block, key):
    """What is subtracted has mean zero.

    With two draws for each of the sets, a set that served both for z0 and for the mean would halve the
    curvature part of the mean, and one that repeated the estimate's draws would cancel it.
    """
    key_v, key_draws = jr.split(key)
    target, q = bent_target(2), family(name, 2, small=True)
    surrogate = QuadraticFlow(LaggedBeta(per_block=per_block), extra_draws=2)
    plain, controlled = Pathwise(draws=2), Pathwise(surrogate=surrogate, draws=2)
    state = controlled.init(target, q)
    averages = state.surrogate.averages
    ones = jax.tree.map(jnp.ones_like, averages.products)
    state = state._replace(
        surrogate=state.surrogate._replace(
            v=quadratic(2, 2, key_v), averages=averages._replace(products=ones)
        )
    )

    def difference(key):
        ours, _ = controlled.step(target, q, state, key=key)
        theirs, _ = plain.step(target, q, plain.init(target, q), key=key)
        return ravel_pytree(ours.grad)[0] - ravel_pytree(theirs.grad)[0]

    subtracted = replicate(difference, 20_000, key_draws)
    assert np.max(np.std(subtracted, axis=0)) > 0.1
    assert_mean(subtracted, 0.0)


@pytest.mark.parametrize(
    "surrogate", [Quadratic(), QuadraticFlow(extra_draws=5)], ids=["closed", "flow"]
)
def test_coefficient_does_not_know_the_current_draws(surrogate, key):
    """beta is read before the averages take this step's draws in."""
    target, q = bent_target(2), family("mean-field", 2)
    made = Pathwise(surrogate=surrogate, draws=3)
    step, state = eqx.filter_jit(made.step), made.init(target, q)
    before, *keys = jr.split(key, 3)
    state = step(target, q, state, key=before)[1]
    (first, one), (second, other) = (step(target, q, state, key=k) for k in keys)
    assert first.beta == second.beta
    assert np.any(np.asarray(ravel_pytree(first.grad)[0]) != np.asarray(ravel_pytree(second.grad)[0]))
    assert one.surrogate.averages.products.cross != other.surrogate.averages.products.cross


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", EXACT)
def test_quadcv_takes_the_closed_form_where_there_is_one(name):
    q, target = family(name, 2), bent_target(2)
    both, closed = QuadCV(), Quadratic()
    closed_form = isinstance(q, HasPathMetric)
    assert both.refuses(target, q, 2) is None
    assert (closed.refuses(target, q, 2) is None) == closed_form
    assert eqx.tree_equal(
        both.init(target, q), (closed if closed_form else both.empirical).init(target, q)
    )
