"""What runs on the host: L-BFGS, Sobol points, values and curvature at chosen points."""

import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_same
from scipy.stats import qmc
from threadpoolctl import threadpool_info

import quietgrad as qg
from quietgrad._numerics.lapack import one_blas_thread
from quietgrad._numerics.lbfgs import CurvatureMemory, LbfgsState, iterate, minimise
from quietgrad._numerics.sobol import MOST_DIMENSIONS, sobol_digits
from quietgrad.evaluation import points as host_points
from quietgrad.evaluation.points import AT_ONCE, Points, equal_magnitude_pairs, sobol_pairs
from quietgrad.families.factor_analysis import _loss as factors_loss
from quietgrad.families.factor_analysis import best_factors
from quietgrad.solvers.fixed_draws import FixedElbo


def rosenbrock(x):
    value = np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    return float(value), np.asarray(
        jax.grad(lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))(x)
    )


def test_lbfgs_goes_down_to_the_minimum():
    values = [at.value for at in minimise(rosenbrock, np.array([1.2, 1.0, 0.5, 2.0]))]
    assert np.all(np.diff(values) < 0)
    assert values[-1] < 1e-12
    assert len(values) < 100


def test_a_search_that_is_put_down_and_taken_up_again_is_the_same_search():
    """What a checkpoint stores between two iterations is all that the next one needs."""
    state, pieces = LbfgsState.begin(np.array([1.2, 1.0, 0.5, 2.0])), []
    for count in (1, 4, 2, 5):
        before = state
        state, done = iterate(rosenbrock, state, count)
        again, _ = iterate(rosenbrock, before, count)
        assert done == count
        np.testing.assert_array_equal(state.at.x, again.at.x)
        pieces.append(state.at.x)
    whole, _ = iterate(rosenbrock, LbfgsState.begin(np.array([1.2, 1.0, 0.5, 2.0])), 12)
    np.testing.assert_array_equal(pieces[-1], whole.at.x)
    at_the_end, done = iterate(rosenbrock, whole, 1000)
    assert done < 1000
    assert iterate(rosenbrock, at_the_end, 5)[1] == 0


def two_loops(pairs, grad):
    """The product by the recursion of Nocedal (1980), taken literally."""
    left, shares = grad.copy(), []
    for moved, turned in reversed(pairs):
        share = (moved @ left) / (moved @ turned)
        left -= share * turned
        shares.append(share)
    moved, turned = pairs[-1]
    left *= (moved @ turned) / (turned @ turned)
    for (moved, turned), share in zip(pairs, reversed(shares), strict=True):
        left += (share - (turned @ left) / (moved @ turned)) * moved
    return left


def test_the_compact_memory_is_the_two_loop_recursion():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((8, 8))
    memory, pairs, grad = CurvatureMemory(4, 8), [], rng.standard_normal(8)
    np.testing.assert_array_equal(memory.inverse_times(grad), grad)
    # More pairs than it holds: the oldest ones make room.
    for count in range(1, 13):
        moved = rng.standard_normal(8)
        turned = root @ root.T @ moved
        memory.add(moved, turned)
        pairs.append((moved, turned))
        assert len(memory) == min(count, 4)
        np.testing.assert_allclose(memory.inverse_times(grad), two_loops(pairs[-4:], grad), rtol=1e-9)
    memory.clear()
    np.testing.assert_array_equal(memory.inverse_times(grad), grad)


def test_the_limit_on_blas_threads_is_taken_back():
    def threads():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before = threads()
    with one_blas_thread():
        assert threads()
        assert set(threads()) == {1}
    assert threads() == before


def test_lbfgs_remembers_positive_curvature_only():
    """Down from the top of a hill, slopes only steepen: no step tells of a minimum's curvature."""

    def hill(x):
        return -float(x @ x), -2 * x

    state, done = iterate(hill, LbfgsState.begin(np.array([1.0, 2.0])), 3)
    assert done == 3
    assert state.at.value < -5.0
    assert len(state.pairs.s) == 0
    state, _ = iterate(rosenbrock, LbfgsState.begin(np.array([1.2, 1.0, 0.5, 2.0])), 12)
    assert np.all(np.sum(state.pairs.s * state.pairs.y, axis=1) > 0)


@pytest.mark.parametrize("steepness", [1e-3, 1e6])
def test_the_first_step_of_lbfgs_is_no_longer_than_one(steepness):
    """In the sum of its sizes, however steep the start is: nothing is known of the curvature yet."""
    asked = []

    def bowl(x):
        asked.append(x.copy())
        return 0.5 * steepness * float(x @ x), steepness * x

    start = np.array([3.0, -2.0])
    iterate(bowl, LbfgsState.begin(start), 1)
    np.testing.assert_array_equal(asked[0], start)
    # Downhill by the gradient, or by as much of it as has length one.
    expected = start - min(steepness, 1 / 5) * start
    np.testing.assert_allclose(asked[1], expected, rtol=1e-12)


def test_lbfgs_walks_around_what_is_not_finite():
    def log_barrier(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(x @ x - np.log(x[0] - 0.5)), 2 * x - np.array([1 / (x[0] - 0.5), 0.0])

    *_, last = minimise(log_barrier, np.array([30.0, 5.0]))
    assert np.linalg.norm(last.grad) < 1e-5
    assert last.x[0] > 0.5
    assert list(minimise(lambda x: (np.nan, x), np.ones(2))) == []


@pytest.mark.parametrize(("points", "dim"), [(1, 3), (16, 700), (100, 2000)])
def test_sobol_points_are_scipys(points, dim):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        theirs = qmc.Sobol(dim, scramble=False).random(points)
    np.testing.assert_array_equal(sobol_digits(points, dim), (theirs * 2.0**32).astype(np.uint32))
    assert qmc.Sobol.MAXDIM == MOST_DIMENSIONS


def test_sobol_points_go_on_where_the_table_of_directions_ends():
    """The nineteenth direction, beyond the table's 18, is needed from the point 2^18 on. In the first
    coordinate directions are powers of a half. The second has the polynomial x + 1: each direction is
    the one before, times 3 without carries."""
    count = 2**18 + 1
    last, before = sobol_digits(count, 2)[[-1, -2]]
    changed = last ^ before
    direction = 1
    for _ in range(18):
        direction ^= direction << 1
    assert changed.tolist() == [2**13, (direction << 13) % 2**32]


@pytest.mark.parametrize("base", [qg.Normal(), qg.Logistic(), qg.StudentT(df=5.0)])
def test_spread_pairs_have_the_base_distribution(base):
    """Quasi-random points err less than independent ones, whose error this allows."""
    e = np.concatenate([sobol_pairs(base, 256, 3, np.random.default_rng(i)) for i in range(20)])
    np.testing.assert_allclose(e[:256], -e[256:512])
    share = np.mean(e < float(base.quantile(jnp.asarray(0.9))), axis=0)
    assert np.all(np.abs(share - 0.9) < 5 * np.sqrt(0.09 / len(e)))
    np.testing.assert_allclose(base.host_quantile(np.array([0.2])), base.quantile(jnp.array([0.2])))
    np.testing.assert_allclose(base.host_log_prob(e[:9]), base.log_prob(jnp.asarray(e[:9])), rtol=1e-12)


def test_the_smallest_digits_are_a_finite_draw(monkeypatch):
    monkeypatch.setattr(host_points, "scramble", lambda digits, seed: np.zeros_like(digits))
    assert np.all(np.isfinite(sobol_pairs(qg.Normal(), 4, 3, np.random.default_rng(0))))


@pytest.mark.parametrize("base", [qg.Normal(), qg.Logistic(), qg.StudentT(df=5.0)])
def test_levelled_pairs_have_the_same_sizes_in_every_coordinate(base):
    pairs, dim = 16, 50
    e = equal_magnitude_pairs(base, pairs, dim, np.random.default_rng(0))
    np.testing.assert_array_equal(e[:pairs], -e[pairs:])
    sizes = np.sort(np.abs(e[:pairs]), axis=0)
    np.testing.assert_array_equal(sizes, np.broadcast_to(sizes[:, :1], sizes.shape))
    # In orders of their own: coordinates that are large together would be taken for one.
    orders = {tuple(order) for order in np.argsort(np.abs(e[:pairs]), axis=0).T}
    assert len(orders) == dim
    # One size in each of the equally likely parts.
    edges = base.host_quantile(0.5 + 0.5 * np.arange(1, pairs) / pairs)
    np.testing.assert_array_equal(np.searchsorted(edges, sizes[:, 0]), np.arange(pairs))
    # The variance of the base, far closer than so many independent draws come to it.
    squares = np.asarray(base.host_quantile((np.arange(10**5) + 0.5) / 10**5)) ** 2
    error = np.std(squares) / np.sqrt(pairs)
    assert abs(np.mean(e[:, 0] ** 2) - base.variance) < 0.1 * error
    # Orders and signs are random: coordinates are as independent as random orders are.
    between = np.corrcoef(e[:pairs].T)[np.triu_indices(dim, 1)]
    assert abs(np.mean(between)) < 5 / np.sqrt(pairs * between.size)
    assert abs(np.mean(e[:pairs] > 0) - 0.5) < 5 * 0.5 / np.sqrt(pairs * dim)


def bent(z):
    return -jnp.sum(jnp.exp(0.3 * z)) - 0.5 * jnp.sum(z) ** 2


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 5])
def test_points_are_evaluated_in_blocks(count):
    target = qg.Target.from_logdensity(bent, dim=4)
    points, z = Points(target, np.float64), np.random.default_rng(0).normal(size=(count, 4))
    values, slopes = points(z)
    each = [jax.jit(jax.vmap(of))(z) for of in (bent, jax.grad(bent), jax.hessian(bent))]
    assert_same(values, each[0], operations=20)
    assert_same(slopes, each[1], operations=20)
    assert points.gradients == count
    gradient, hessian = points.curvature(z, np.eye(z.shape[1]))
    assert_same(gradient, jnp.mean(each[1], axis=0), operations=100)
    assert_same(hessian, jnp.mean(each[2], axis=0), operations=100)


@pytest.mark.parametrize("pairs", [3, AT_ONCE // 2, 2 * AT_ONCE])
def test_the_elbo_at_fixed_draws_is_the_literal_one(pairs):
    points = Points(qg.Target.from_logdensity(bent, dim=4), np.float64)
    rng = np.random.default_rng(0)
    e, x = sobol_pairs(qg.Normal(), pairs, 4, rng), rng.normal(size=8)

    def literal(x):
        z = jax.vmap(lambda e: x[:4] + jnp.exp(x[4:]) * e)(e)
        return -jnp.mean(jax.vmap(bent)(z)) - jnp.sum(x[4:])

    value, grad = FixedElbo(points, e)(x)
    expected = jax.jit(jax.value_and_grad(literal))(x)
    assert_same(value, expected[0], operations=100)
    assert_same(grad, expected[1], operations=100)


def test_targets_that_differ_in_their_data_share_a_program():
    x = np.random.default_rng(0).normal(size=(2, 10, 3))
    prior, likelihood = (lambda z: -z @ z), (lambda z, x: -jnp.exp(x @ z))
    first, second = (Points(qg.Target(prior, likelihood, rows, dim=3), np.float64) for rows in x)
    assert first._program is second._program
    z = np.ones((1, 3))
    assert first(z)[0] != second(z)[0]


@jax.custom_vjp
def elsewhere(z):
    """A log density computed outside of JAX, which gives its gradient but no Hessian."""
    shape = jax.ShapeDtypeStruct((), z.dtype)
    return jax.pure_callback(lambda z: -0.5 * np.sum(z**2), shape, z, vmap_method="sequential")


def _gradient(z, c):
    shape = jax.ShapeDtypeStruct(z.shape, z.dtype)
    return (c * jax.pure_callback(lambda z: -np.asarray(z), shape, z, vmap_method="sequential"),)


elsewhere.defvjp(lambda z: (elsewhere(z), z), _gradient)


def test_a_target_without_hessian_is_recognised_and_fitted_without():
    target = qg.Target.from_logdensity(elsewhere, dim=4)
    assert not Points(target, np.float64).has_curvature(4)
    result = qg.fit(target, "full-rank", method=qg.Auto(steps=1500), key=jr.key(1))
    assert {"newton", "newton stop"}.isdisjoint(d.kind for d in result.decisions)
    assert np.isfinite(result.elbo)


def objective(precision, log_std, factor):
    covariance = np.diag(np.exp(2 * log_std)) + factor.T @ factor
    return 0.5 * (np.linalg.slogdet(covariance)[1] - np.trace(precision @ covariance))


def test_the_best_factors_are_found_for_a_covariance_that_has_them():
    rng = np.random.default_rng(0)
    factor, log_std = 2 * rng.normal(size=(2, 12)), rng.normal(size=12)
    precision = np.linalg.inv(np.diag(np.exp(2 * log_std)) + factor.T @ factor)
    best = objective(precision, log_std, factor)
    found = np.zeros(12), 0.05 * rng.normal(size=(2, 12))
    for _ in range(5):
        found = best_factors(precision, *found)
    # Each call ends when an iteration gains less than a thousandth of a nat.
    assert best - 0.02 < objective(precision, *found) <= best + 1e-9


def test_the_slope_for_factors_is_that_of_the_objective():
    """By automatic derivatives of the dense formula, away from unit scales."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(5, 5))
    precision, x = root @ root.T + np.eye(5), 0.5 * rng.normal(size=15)

    def dense(x):
        factor = x[5:].reshape(2, 5)
        covariance = jnp.diag(jnp.exp(2 * x[:5])) + factor.T @ factor
        return 0.5 * (jnp.sum(precision * covariance) - jnp.linalg.slogdet(covariance)[1])

    expected = jax.jit(jax.value_and_grad(dense))(jnp.asarray(x))
    value, slope = factors_loss(precision, x, 5, 2)
    np.testing.assert_allclose(value, expected[0], rtol=1e-9)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-9, atol=1e-9)


def test_factors_do_not_depend_on_units():
    """Scaling the coordinates by powers of ten scales the answer and changes nothing else."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(8, 8))
    precision, scale = root @ root.T + np.eye(8), 10.0 ** rng.integers(-5, 6, 8)
    start = np.zeros(8), 0.1 * rng.normal(size=(2, 8))
    log_std, factor = best_factors(precision, *start)
    scaled = best_factors(precision * np.outer(scale, scale), start[0] - np.log(scale), start[1] / scale)
    np.testing.assert_allclose(scaled[0], log_std - np.log(scale), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scaled[1] * scale, factor, rtol=1e-4, atol=1e-6)


def test_a_hessian_that_is_infinite_is_told_by_its_numbers_alone():
    """No warning of NumPy's, which here would be an error."""
    target = qg.Target.from_logdensity(lambda z: jnp.sqrt(z[0]) - z[1] ** 2, dim=2)
    _, hessian = Points(target, np.float64).curvature(np.array([[0.0, 1.0]]), np.eye(2))
    assert not np.all(np.isfinite(hessian))
