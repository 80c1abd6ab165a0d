"""`stein_weights`: exact where theory says so, the same in draws and in columns, honest about bias."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from literal import assert_close, stein_columns
from oracles import assert_mean, assert_same, excess, replicate

import quietgrad as qg
from quietgrad.estimators.weights import (
    FOLDS,
    GRAM_SOLVERS,
    KERNELS,
    GradientDescent,
    KFold,
    LeastSquares,
    Polynomial,
    Ridge,
)
from quietgrad.estimators.weights.designs import ColumnDesign, GramDesign
from quietgrad.estimators.weights.ensemble import DEALS, deal
from quietgrad.estimators.weights.stein_weights import design_of
from quietgrad.families.bases import Logistic, Normal

DIM = 3
PRECISIONS = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])


def gaussian(key, draws, dtype=float):
    """Points that are no draws of p = N(m, S), with the scores of p, m and S."""
    mean, root = jnp.arange(1.0, DIM + 1), jnp.eye(DIM) + 0.4 * jnp.tri(DIM)
    covariance = root @ root.T
    points = 1.5 * jr.normal(key, (draws, DIM)) - 1 + 0.3 * jr.normal(key, (draws, DIM)) ** 2
    scores = -jnp.linalg.solve(covariance, (points - mean[None, :]).T).T
    return points.astype(dtype), scores.astype(dtype), mean, covariance


@pytest.mark.turns(2)
@PRECISIONS
@pytest.mark.parametrize("draws", [DIM + 1, 9])
def test_order_one_is_exact_for_the_mean_of_a_gaussian(draws, dtype, key):
    points, scores, mean, _ = gaussian(key, draws, dtype)
    w = qg.stein_weights(points, scores, solver="least-squares")
    assert w.dtype == dtype
    # Fits amplify rounding by their condition, which is some hundred for as many draws as unknowns.
    size = 100 * float(jnp.sum(jnp.abs(w)) * jnp.max(jnp.abs(points)))
    assert_same(w @ points, mean.astype(dtype), operations=draws, scale=size)


@pytest.mark.turns(2)
@PRECISIONS
@pytest.mark.parametrize("draws", [10, 40])
def test_order_two_is_exact_for_second_moments_of_a_gaussian(draws, dtype, key):
    points, scores, mean, covariance = gaussian(key, draws, dtype)
    w = qg.stein_weights(points, scores, order=2, solver="least-squares")
    second = (points * w[:, None]).T @ points
    expected = (covariance + mean[:, None] * mean[None, :]).astype(dtype)
    size = 100 * float(jnp.sum(jnp.abs(w)) * jnp.max(points**2))
    assert_same(second, expected, operations=draws, scale=size)
    assert_same(w @ points, mean.astype(dtype), operations=draws, scale=size)


def test_order_one_is_not_exact_for_second_moments(key):
    points, scores, mean, covariance = gaussian(key, 40)
    w = qg.stein_weights(points, scores, solver="least-squares")
    found = w @ points[:, 0] ** 2
    assert abs(found - covariance[0, 0] - mean[0] ** 2) > 0.01


@pytest.mark.turns(2)
@pytest.mark.parametrize("draws", [6, 40], ids=["in draws", "in columns"])
@pytest.mark.parametrize("order", [1, 2])
def test_ridge_in_sample_solves_for_ones(order, draws, key):
    """w proportional to (G + penalty I)^-1 1, from columns written out one by one."""
    points, scores, *_ = gaussian(key, draws)
    columns = stein_columns(np.asarray(points), np.asarray(scores), order)
    gram = columns @ columns.T
    solved = np.linalg.solve(gram + 1e-3 * np.mean(np.diag(gram)) * np.eye(draws), np.ones(draws))
    assert_close(qg.stein_weights(points, scores, order=order), solved / np.sum(solved))


@pytest.mark.turns(2)
@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize(
    "solver", [*(s() for s in GRAM_SOLVERS.values()), GradientDescent("converge")], ids=repr
)
def test_columns_and_gram_give_the_same_weights(solver, folds, key):
    points, scores, *_ = gaussian(key, 30)
    made, kernel = FOLDS[folds](), Polynomial(2)
    columns = ColumnDesign(kernel.columns(points, scores))
    gram = GramDesign(kernel.gram(points, scores))
    a, b = (eqx.filter_jit(made.weights)(design, solver) for design in (columns, gram))
    # Through the Gram matrix the condition of the columns is squared.
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * np.max(np.abs(b)))


def test_columns_are_used_where_they_are_fewer():
    x = jnp.ones((10, 3))
    assert isinstance(design_of(Polynomial(2), x, x), ColumnDesign)
    assert isinstance(design_of(Polynomial(2), x[:9], x[:9]), GramDesign)
    assert isinstance(design_of(KERNELS["gaussian"](), x, x), GramDesign)


@pytest.mark.turns(4)
@PRECISIONS
@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_sets_of_draws_are_weighted_side_by_side(kernel, folds, dtype, key):
    sets = [gaussian(k, 8, dtype)[:2] for k in jr.split(key, 6)]
    points, scores = (jnp.stack(x).reshape((2, 3, 8, DIM)) for x in zip(*sets, strict=True))
    together = jax.jit(lambda x, s: qg.stein_weights(x, s, kernel=kernel, folds=folds))(points, scores)
    apart = jnp.stack([qg.stein_weights(x, s, kernel=kernel, folds=folds) for x, s in sets])
    assert together.shape == (2, 3, 8)
    assert together.dtype == dtype
    size = 100 * float(jnp.max(jnp.sum(jnp.abs(apart), axis=1)))
    assert_same(together.reshape(6, 8), apart, operations=8, scale=size)
    assert_same(jnp.sum(apart, axis=1), jnp.ones(6, dtype), operations=8, scale=size)


def test_no_gradient_flows_through_the_weights(key):
    points, scores, *_ = gaussian(key, 8)
    slope = jax.grad(lambda x: jnp.sum(qg.stein_weights(x, -x) * jnp.sum(x**3, axis=1)))(points)
    expected = 3 * qg.stein_weights(points, -points)[:, None] * points**2
    assert_close(slope, expected)


REPLICATIONS = 20_000


def bent(x):
    return jnp.stack([jnp.exp(0.5 * x[..., 0]), jnp.sum(x**2, axis=-1)], axis=-1)


def estimates(key, **settings):
    """Of E exp(x_1/2) and E |x|^2 under independent logistic coordinates, from 12 draws of two."""
    base = Logistic()

    def once(key):
        x = base.sample((12, 2), float, key=key)
        return qg.stein_weights(x, base.score(x), **settings) @ bent(x)

    return replicate(once, REPLICATIONS, key)


# E exp(t x) = pi t / sin(pi t) for the logistic distribution.
TRUTH = np.array([np.pi / 2, 2 * np.pi**2 / 3])
UNBIASED = {
    "k-fold": {"folds": "k-fold"},
    "leave-one-out": {"folds": "leave-one-out"},
    "least squares": {"folds": "k-fold", "solver": "least-squares"},
    "descent": {"folds": "leave-one-out", "solver": "gd"},
    "control functionals": {"folds": "k-fold", "kernel": "gaussian"},
    "small fits": {"folds": "k-fold", "group": 1},
    "second order": {"folds": "k-fold", "order": 2, "solver": Ridge(0.5)},
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", UNBIASED)
def test_cross_fitted_weights_are_unbiased(name, key):
    assert_mean(estimates(key, **UNBIASED[name]), TRUTH)


@pytest.mark.parametrize("settings", [{}, {"order": 2}], ids=["order 1", "order 2"])
def test_in_sample_weights_are_biased(settings, key):
    assert np.max(excess(estimates(key, **settings), TRUTH)) > 10


def chains(key, count, steps):
    """Stationary AR(1) chains of N(0, I), one after the other: neighbours correlate by 0.8."""
    start, noise = jr.split(key)
    first = jr.normal(start, (count, 2))
    moves = 0.6 * jr.normal(noise, (steps - 1, count, 2))

    def step(x, move):
        x = 0.8 * x + move
        return x, x

    _, rest = jax.lax.scan(step, first, moves)
    return jnp.concatenate([first[None], rest]).swapaxes(0, 1).reshape(count * steps, 2)


def test_chains_are_unbiased_by_each_other_and_not_by_neighbours(key):
    def once(folds):
        def estimate(key):
            x = chains(key, 2, 8)
            return qg.stein_weights(x, -x, folds=folds) @ bent(x)

        return replicate(estimate, REPLICATIONS, key)

    truth = np.array([np.exp(0.125), 2.0])
    assert_mean(once(KFold(2)), truth)
    assert np.max(excess(once("leave-one-out"), truth)) > 10


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_take_variance_away(kernel, key):
    def once(key):
        x = Normal().sample((30, 3), float, key=key)
        w = qg.stein_weights(x, -x, kernel=kernel, folds="k-fold")
        return jnp.stack([w @ jnp.exp(0.3 * x[:, 0]), jnp.mean(jnp.exp(0.3 * x[:, 0]))])

    ratio = np.divide(*np.var(replicate(once, 2000, key), axis=0))
    assert ratio < 0.3


@pytest.mark.turns(2)
@pytest.mark.parametrize("scaling", ["diagonal", "whiten"])
@pytest.mark.parametrize("order", [1, 2])
def test_scaling_changes_no_fit_without_a_penalty(order, scaling, key):
    points, scores, *_ = gaussian(key, 30)
    plain, other = (
        qg.stein_weights(points, scores, order=order, solver=LeastSquares(), scaling=s)
        for s in ("none", scaling)
    )
    np.testing.assert_allclose(plain, other, rtol=0, atol=1e-9)


def test_scaling_makes_units_irrelevant(key):
    """In single precision, far from the origin, with units a million apart."""
    points, scores, mean, _ = gaussian(key, 200)
    units = jnp.array([1e-3, 1.0, 1e3])
    away = (points + 100) * units[None, :], scores / units[None, :]
    w = qg.stein_weights(*(x.astype(jnp.float32) for x in away), order=2, scaling="whiten")
    found = np.asarray(w, float) @ (np.asarray(points))
    # The ridge leaves about a thousandth of what a plain mean misses.
    missed = np.abs(np.mean(np.asarray(points), axis=0) - mean)
    assert np.all(np.abs(found - mean) < 0.02 * missed)


@pytest.mark.parametrize(("dim", "group"), [(7, 3), (6, 2), (4, 4), (5, 1)])
def test_every_coordinate_is_dealt_out(dim, group):
    hands = np.asarray(deal(dim, group))
    assert hands.shape[1] == group
    assert all(len(set(hand)) == group for hand in hands)
    assert np.min(np.bincount(hands.ravel(), minlength=dim)) >= (1 if group == dim else DEALS)


def test_small_fits_help_where_there_are_more_coordinates_than_draws(key):
    def once(key):
        x = Normal().sample((12, 40), float, key=key)
        w = qg.stein_weights(x, -x, folds="k-fold", group=2)
        return jnp.stack([w @ jnp.mean(x, axis=1), jnp.mean(x)])

    assert np.divide(*np.var(replicate(once, 2000, key), axis=0)) < 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "gaussian", "order": 2}, 'order=2 is for kernel="polynomial"'),
        ({"kernel": "cubic"}, "unknown kernel 'cubic'; known: gaussian, polynomial"),
        ({"solver": "lasso"}, "unknown solver 'lasso'"),
        ({"folds": KFold(5)}, "5-fold weights need at least 5 draws; got 4"),
        ({"scaling": "full"}, "scaling must be one of none, diagonal, whiten; got 'full'"),
        ({"scaling": "whiten"}, "more draws than dimensions; got 4 draws in 5"),
        ({"group": 6}, "at most the 5 coordinates"),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    x = jnp.ones((4, 5))
    with pytest.raises(ValueError, match=message):
        qg.stein_weights(x, x, **settings)


@pytest.mark.parametrize("shapes", [((4, 5), (5, 4)), ((4,), (4,)), ((1, 3), (1, 3))])
def test_wrong_shapes_are_refused(shapes):
    with pytest.raises(ValueError, match=r"shape \(draws, dim\)|at least 2 draws"):
        qg.stein_weights(*(jnp.ones(shape) for shape in shapes))
