"""Stein weights against the fits they stand for, with explicit columns and coefficients.

Fitted to phi = I, a rule that is linear in phi returns its own weights: h = w'I.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from literal import (
    adjusted_mean,
    assert_close,
    bent_target,
    blocks,
    descent,
    each,
    in_sample,
    least_squares,
    ridge,
    stein_columns,
)
from oracles import assert_same

from quietgrad import stein_weights
from quietgrad.estimators import estimator, weights
from quietgrad.estimators.weights import (
    FOLDS,
    GRAM_SOLVERS,
    KERNELS,
    GradientDescent,
    InSample,
    KFold,
    LeastSquares,
    LeaveOneOut,
    Polynomial,
    Ridge,
    Stein,
)
from quietgrad.estimators.weights.designs import GramDesign
from quietgrad.estimators.weights.folds.leave_one_out import leave_each_out
from quietgrad.estimators.weights.solvers import HasLeaveOneOut
from quietgrad.families import MeanField
from quietgrad.families.bases import Normal, StudentT

ORDERS = (1, 2)
SHAPES = ((2, 1), (7, 3), (10, 37), (50, 8))


@eqx.filter_jit
def weigh(rule, e, base):
    return rule(e, base)


def literal_weights(kernel, fit, splits, e, base):
    columns = stein_columns(np.asarray(e), np.asarray(base.score(e)), kernel.order)
    return adjusted_mean(np.eye(len(e)), columns, fit, splits(len(e)))


@pytest.mark.turns(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("steps", [1, 4, 20, 400])
@pytest.mark.parametrize("order", ORDERS)
def test_weights_are_the_papers_inner_loop(order, steps, shape, key):
    e, kernel = Normal().sample(shape, float, key=key), Polynomial(order)
    w = weigh(Stein(kernel, GradientDescent(steps, 1e-3), InSample()), e, Normal())
    assert_close(w, literal_weights(kernel, descent(steps, 1e-3), in_sample, e, Normal()))
    # One step of 1e-3 moves the weights by far more than the tolerance.
    assert np.max(np.abs(np.asarray(w) - 1 / shape[0])) > 1e-6


@pytest.mark.parametrize("shape", [(3, 4), (12, 2)], ids=["interpolating", "overdetermined"])
@pytest.mark.parametrize("order", ORDERS)
def test_converge_is_the_limit_of_many_steps(order, shape, key):
    e, kernel = Normal().sample(shape, float, key=key), Polynomial(order)
    limit = weigh(Stein(kernel, GradientDescent("converge"), InSample()), e, Normal())
    columns = stein_columns(np.asarray(e), -np.asarray(e), order)
    squared = np.linalg.eigvalsh(columns @ columns.T + 1)
    smallest = squared[squared > 1e-9 * squared[-1]][0]
    # At the rate L / lambda_max the slowest error shrinks by (1 - 2 lambda_min / lambda_max) a step.
    rate, steps = shape[0] / squared[-1] / 2, int(30 * squared[-1] / smallest)
    assert steps < 1e5
    assert_close(limit, literal_weights(kernel, descent(steps, rate), in_sample, e, Normal()))


FITS = {
    "gd": (GradientDescent(20, 1e-2), lambda scale: descent(20, 1e-2)),
    "ridge": (Ridge(0.3), lambda scale: ridge(0.3 * scale)),
    "least-squares": (LeastSquares(), lambda scale: least_squares),
}
SPLITS = {
    "in-sample": (InSample(), in_sample),
    "k-fold": (KFold(3), blocks(3)),
    "leave-one-out": (LeaveOneOut(), each),
}


@pytest.mark.parametrize("base", [Normal(), StudentT()], ids=["normal", "student-t"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("rule", FITS)
def test_weights_are_the_fits_they_stand_for(rule, split, base, key):
    kernel, (solver, fit), (folds, splits) = Polynomial(2), FITS[rule], SPLITS[split]
    e = base.sample((8, 2), float, key=key)
    w = weigh(Stein(kernel, solver, folds), e, base)
    assert_close(w, literal_weights(kernel, fit(kernel.scale(2, base)), splits, e, base))


def test_every_filter_and_every_fold_has_a_literal_form():
    assert set(FITS) == set(GRAM_SOLVERS)
    assert set(SPLITS) == set(FOLDS)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", [n for n, f in GRAM_SOLVERS.items() if issubclass(f, HasLeaveOneOut)])
def test_short_cut_is_one_fit_per_draw(name, kernel, key):
    solver, kernel = GRAM_SOLVERS[name](), KERNELS[kernel]()
    e, scale = Normal().sample((9, 4), float, key=key), kernel.scale(4, Normal())
    gram = eqx.filter_jit(kernel.gram_of_base)(e, Normal())
    assert isinstance(solver, HasLeaveOneOut)
    short = eqx.filter_jit(solver.leave_one_out)(gram, scale)
    assert_close(short, eqx.filter_jit(leave_each_out)(GramDesign(gram, scale), solver))


@pytest.mark.turns(2)
@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("solver", GRAM_SOLVERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_sum_to_one(kernel, solver, folds, key):
    w = weigh(Stein(kernel, solver, folds), Normal().sample((10, 3), float, key=key), Normal())
    size = float(jnp.sum(jnp.abs(w)))
    assert_same(jnp.sum(w), jnp.ones(()), operations=10 * len(w), scale=max(size, 1.0))


@pytest.mark.parametrize("name", GRAM_SOLVERS)
def test_what_a_fit_takes_from_the_draws_sums_to_zero_however_ill_conditioned_it_is(name):
    """Every fit has an intercept. The columns' sizes, squared in the Gram matrix, use up all digits."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(10, 4)) * np.array([1e-4, 1e-2, 1e2, 1e4])
    gram = jnp.asarray(columns @ columns.T)
    taken = np.asarray(GRAM_SOLVERS[name]().apply(gram, gram, jnp.mean(jnp.diagonal(gram))))
    # Some roundings of numbers of their size.
    assert np.all(np.abs(np.sum(taken, axis=1)) <= 1e-12 * np.sum(np.abs(taken), axis=1))


@pytest.mark.parametrize(
    ("points", "scores"), [((6, 2), (6, 3)), ((6, 2), (5, 2)), ((6,), (6,)), ((3, 6, 2), (6, 2))]
)
def test_points_and_scores_of_other_shapes_are_refused(points, scores):
    with pytest.raises(ValueError, match=r"must both have the shape \(draws, dim\)"):
        stein_weights(jnp.ones(points), jnp.ones(scores))


def test_uniform_weights_are_equal(key):
    w = weights.Uniform()(Normal().sample((4, 2), float, key=key), Normal())
    np.testing.assert_array_equal(w, np.full(4, 0.25))


def heavy(df):
    return MeanField(loc=jnp.zeros(2), log_std=jnp.zeros(2), base=StudentT(df))


def test_tails_that_are_too_heavy_are_refused():
    with pytest.raises(ValueError, match="StudentT are too heavy .* order 2.*use order=1"):
        estimator("zvcv-gd", order=2).init(bent_target(2), heavy(2.0))


@pytest.mark.parametrize(("order", "df"), [(1, 2.0), (2, 5.0)])
def test_tails_that_are_light_enough_are_not(order, df, key):
    made, q, target = estimator("zvcv-gd", order=order), heavy(df), bent_target(2)
    estimate, _ = eqx.filter_jit(made.step)(target, q, made.init(target, q), key=key)
    assert jnp.all(jnp.isfinite(estimate.grad.log_std))


@pytest.mark.parametrize(("folds", "draws"), [(KFold(5), 4), (KFold(2), 3), (LeaveOneOut(), 2)])
def test_too_few_draws_are_refused(folds, draws):
    refused, enough = Stein(folds=folds), draws + 1
    assert f"got {draws}" in str(refused.refuses(draws, Normal()))
    assert refused.refuses(enough, Normal()) is None
