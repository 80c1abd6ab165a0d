"""Coefficients of explicit control variates: criteria, solvers, and the draws they are fitted on."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from literal import assert_close, bent_target, descent
from oracles import assert_mean, assert_same, excess, replicate
from subjects import family

from quietgrad.estimators import Controlled
from quietgrad.estimators.control_variates import (
    CRITERIA,
    SOLVERS,
    SOURCES,
    EmpiricalVariance,
    ExplicitDescent,
    ExplicitRidge,
    LaggedSource,
    PairwiseVariance,
)
from quietgrad.estimators.control_variates.solvers import apply
from quietgrad.targets import Target

SHARED = pytest.mark.parametrize("shared", [True, False], ids=["shared", "per-dimension"])
EVERY_CRITERION = pytest.mark.parametrize("criterion", [c() for c in CRITERIA.values()], ids=CRITERIA)


def sample(key, draws=6, params=3):
    """Columns with mean zero that are odd in e, and gradients that are neither odd nor even."""
    e = jr.normal(key, (draws, params))
    return jnp.sin(2 * e) + e**2 + 0.5, jnp.stack([e, e**3 - 3 * e], axis=2)


def objective(criterion, phi, columns, beta):
    return criterion.objective(phi + apply(columns, beta))


def test_pairwise_criterion_is_the_literal_double_sum(key):
    x = np.asarray(sample(key)[0])
    pairs = itertools.combinations(x, 2)
    double_sum = sum(np.sum((a - b) ** 2) for a, b in pairs) / (len(x) * (len(x) - 1))
    assert_same(PairwiseVariance().objective(jnp.asarray(x)), double_sum, operations=50)


def test_least_squares_criterion_has_its_intercept_at_the_best(key):
    x = sample(key)[0]

    def with_intercept(alpha):
        return jnp.mean(jnp.sum((x + alpha[None, :]) ** 2, axis=1))

    best = -jnp.mean(x, axis=0)
    assert_same(EmpiricalVariance().objective(x), with_intercept(best), operations=50)
    assert_same(jax.grad(with_intercept)(best), jnp.zeros(3), operations=50)


def test_squared_norm_criterion_is_its_definition(key):
    x = np.asarray(sample(key)[0])
    expected = np.mean([row @ row for row in x])
    assert_same(CRITERIA["squared-norm"]().objective(jnp.asarray(x)), expected, operations=50)


@SHARED
@EVERY_CRITERION
def test_exact_coefficients_minimise_their_own_criterion(criterion, shared, key):
    phi, columns = sample(key)
    beta = SOLVERS["least-squares"]().solve(criterion, phi, columns, shared=shared)
    slope = jax.grad(objective, 3)(criterion, phi, columns, beta)
    size = float(objective(criterion, phi, columns, jnp.zeros_like(beta)))
    assert_same(slope, jnp.zeros_like(beta), operations=1000, scale=size)
    assert np.min(np.abs(beta)) > 1e-3


@SHARED
@EVERY_CRITERION
def test_ridge_coefficients_minimise_the_penalised_criterion(criterion, shared, key):
    phi, columns = sample(key)
    beta = ExplicitRidge(0.7).solve(criterion, phi, columns, shared=shared)

    def penalised(beta):
        return objective(criterion, phi, columns, beta) + 0.7 * jnp.sum(beta**2)

    size = float(penalised(jnp.zeros_like(beta)))
    assert_same(jax.grad(penalised)(beta), jnp.zeros_like(beta), operations=1000, scale=size)


@pytest.mark.turns(2)
@SHARED
@EVERY_CRITERION
def test_many_descent_steps_arrive_at_the_exact_coefficients(criterion, shared, key):
    phi, columns = sample(key, draws=30)
    exact = SOLVERS["least-squares"]().solve(criterion, phi, columns, shared=shared)
    far = ExplicitDescent(20_000, 5e-3).solve(criterion, phi, columns, shared=shared)
    assert_close(far, exact)
    near = ExplicitDescent(4, 5e-3).solve(criterion, phi, columns, shared=shared)
    assert not np.allclose(near, exact, rtol=1e-3)


@pytest.mark.parametrize("steps", [1, 4, 20])
def test_descent_is_the_papers_inner_loop(steps, key):
    phi, columns = sample(key)
    beta = ExplicitDescent(steps, 1e-2).solve(EmpiricalVariance(), phi, columns, shared=False)
    loop = descent(steps, 1e-2)
    each = [loop(np.asarray(phi[:, [p]]), np.asarray(columns[:, p]))[:, 0] for p in range(3)]
    assert_close(beta, np.stack(each))


@pytest.mark.parametrize("solver", SOLVERS)
@EVERY_CRITERION
def test_coefficients_per_dimension_are_separate_fits(criterion, solver, key):
    phi, columns = sample(key)
    solver = SOLVERS[solver]()
    whole = solver.solve(criterion, phi, columns, shared=False)
    each = [solver.solve(criterion, phi[:, [p]], columns[:, [p]], shared=True) for p in range(3)]
    assert_close(whole, jnp.stack(each))


def cases(*, refused):
    """All combinations of criterion, solver and source, with or against the source's will."""
    return [
        pytest.param(criterion, solver, source, id=f"{criterion}-{solver}-{source}")
        for criterion, solver, source in itertools.product(CRITERIA, SOLVERS, SOURCES)
        if (SOURCES[source]().refuses(SOLVERS[solver]()) is not None) == refused
    ]


def in_turns(combinations):
    """Each source with each solver is for every run, and the rest of the product is slow.

    Criteria take turns, and so do coefficients that are shared or not: what each solver makes of them
    is compared with its definition above.
    """
    made = []
    for each in combinations:
        criterion, solver, source = (
            list(names).index(name)
            for names, name in zip((CRITERIA, SOLVERS, SOURCES), each.values, strict=True)
        )
        turn = criterion == (solver + source) % len(CRITERIA)
        for name, shared in (("shared", True), ("per-dimension", False)):
            now = turn and shared == ((solver * len(SOURCES) + source) % 2 == 0)
            marks = () if now else pytest.mark.slow
            made.append(pytest.param(*each.values, shared, id=f"{each.id}-{name}", marks=marks))
    return made


@pytest.mark.parametrize(("criterion", "solver", "source", "shared"), in_turns(cases(refused=False)))
def test_only_other_draws_leave_the_mean_alone(criterion, solver, source, shared, key):
    """C beta has mean zero unless beta knows the draws, on synthetic gradients and columns."""
    rule, criterion, solver = SOURCES[source](), CRITERIA[criterion](), SOLVERS[solver]()

    def shift(key):
        *before, now, other = [sample(k, draws=4) for k in jr.split(key, 4)]
        state = rule.init(3, 2, float, shared=shared)
        for one in before:
            _, state = rule.beta(state, criterion, solver, [one, other], shared=shared)
        beta, _ = rule.beta(state, criterion, solver, [now, other], shared=shared)
        return jnp.mean(apply(now[1], beta), axis=0)

    shifts = replicate(shift, 4000, key)
    assert np.all(np.std(shifts, axis=0) > 0)
    if rule.biased:
        assert np.max(excess(shifts, 0.0)) > 5
    else:
        assert_mean(shifts, 0.0)


def test_earlier_averages_are_exponential(key):
    """cross from zero, square from twice its first value, both with the decay's weights."""
    rule, solver = LaggedSource(decay=0.8), ExplicitRidge(0.5)
    sets = [sample(k) for k in jr.split(key, 3)]
    state = rule.init(3, 2, float, shared=True)
    betas = []
    for one in sets:
        beta, state = rule.beta(state, EmpiricalVariance(), solver, [one], shared=True)
        betas.append(np.asarray(beta))
    first, second = [_normal_equations(*map(np.asarray, one)) for one in sets[:2]]
    square, cross = 1.8 * first[0], 0.2 * first[1]
    assert_close(betas[0] + 1, np.ones(2))
    assert_close(betas[1], -np.linalg.solve(square + 0.5 * np.eye(2), cross))
    square, cross = 0.8 * square + 0.2 * second[0], 0.8 * cross + 0.2 * second[1]
    assert_close(betas[2], -np.linalg.solve(square + 0.5 * np.eye(2), cross))


def _normal_equations(phi, columns):
    phi, columns = (x - np.mean(x, axis=0) for x in (phi, columns))
    square = sum(c.T @ c for c in columns) / len(phi)
    return square, sum(c.T @ p for c, p in zip(columns, phi, strict=True)) / len(phi)


@pytest.mark.turns(2)
@SHARED
@pytest.mark.parametrize(("criterion", "solver", "source"), cases(refused=False))
def test_every_combination_fits_in_an_estimator(criterion, solver, source, shared, key):
    target, q = bent_target(2), family("mean-field", 2)
    made = Controlled(
        "stein", criterion=criterion, solver=solver, source=source, per_dimension=not shared, draws=4
    )
    state = made.init(target, q)
    estimate, after = eqx.filter_eval_shape(made.step, target, q, state, key=key)
    assert estimate.grad.loc.shape == estimate.grad.log_std.shape == (2,)
    assert estimate.beta.shape == ((2,) if shared else (4, 2))
    assert made.biased == SOURCES[source]().biased
    assert estimate.cost.gradients == 4 * (1 + SOURCES[source]().extra_sets)
    assert jax.tree.structure(after) == jax.tree.structure(state)


@pytest.mark.parametrize(("criterion", "solver", "source"), cases(refused=True))
def test_averages_cannot_be_descended_on(criterion, solver, source):
    made = Controlled("stein", criterion=criterion, solver=solver, source=source)
    with pytest.raises(ValueError, match="need the solver 'least-squares' or 'ridge'"):
        made.init(bent_target(2), family("mean-field", 2))


def test_columns_that_explain_a_gradient_leave_its_mean(key):
    """For a normal target the gradient of a location is linear in e, as first-order columns are."""
    target = Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    q = family("mean-field", 2)
    made = Controlled("stein", per_dimension=True, entropy="closed", draws=6)
    estimate, _ = made.step(target, q, made.init(target, q), key=key)
    assert_close(estimate.grad.loc, -q.loc)


@pytest.mark.parametrize("source", [name for name, cls in SOURCES.items() if not cls().biased])
def test_estimators_with_other_draws_are_unbiased(source, key):
    """The whole estimator, after some steps, against the plain mean of its own draws."""
    target, q = bent_target(2), family("mean-field", 2)
    made = Controlled("stein", source=source, per_dimension=True, draws=4)
    start = made.init(target, q)

    def two_steps(key):
        before, now = jr.split(key)
        _, state = made.step(target, q, start, key=before)
        estimate, _ = made.step(target, q, state, key=now)
        return jnp.concatenate([estimate.grad.loc, estimate.grad.log_std])

    def plain(key):
        estimate, _ = Controlled("stein", solver=ExplicitDescent(0), draws=4).step(
            target, q, start._replace(source=None), key=key
        )
        return jnp.concatenate([estimate.grad.loc, estimate.grad.log_std])

    ours, theirs = replicate(two_steps, 4000, key), replicate(plain, 20_000, jr.fold_in(key, 1))
    error = np.std(theirs, axis=0) / np.sqrt(len(theirs))
    assert_mean(ours, np.mean(theirs, axis=0), error=error)
