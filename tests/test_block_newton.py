"""Newton steps of structured Gaussians against the dense formulas, and their cost."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from structured_members import STRUCTURES, arrays_within, member
from subjects import cast

import quietgrad as qg
from quietgrad import structure as structures_of
from quietgrad.families import Arrowhead, Chain, MeanField
from quietgrad.session import Problem, Recorder
from quietgrad.solvers import BlockNewton, block_steps
from quietgrad.solvers.block_steps import decrement
from quietgrad.structure import Structure, product_count

# Each is one program: by themselves they are some hundred small ones.
averages, newton_step, own_curvature, blocks_of_hessian, root_of_inverse, solve = map(
    eqx.filter_jit,
    (
        *(block_steps.averages, block_steps.newton_step, block_steps.own_curvature),
        *(structures_of.blocks_of_hessian, structures_of.root_of_inverse, structures_of.solve),
    ),
)
KINDS = ["arrowhead", "chain"]
CASES = [(structure, kind) for structure in STRUCTURES for kind in KINDS]
structures = pytest.mark.parametrize(("structure", "kind"), CASES, ids=str)


@eqx.filter_jit
def covariance_of(q):
    return q.covariance_matmul(jnp.eye(q.dim))


def quadratic(structure, kind, seed=5):
    """A precision with the structure's zeros, and a mean."""
    matrix = covariance_of(member(structure, kind, seed))
    return jnp.asarray(np.linalg.inv(matrix)), jr.normal(jr.key(seed), (structure.dim,))


@eqx.filter_jit
def for_blocks(q, mean, blocks):
    return q.for_blocks(mean, blocks)


def gaussian(precision, mean):
    return lambda z: -0.5 * (z - mean) @ precision @ (z - mean)


def as_dense(matrix, structure):
    """A block matrix by its products with unit vectors."""
    return columns(lambda parts: matrix.times(parts), structure)


def columns(times, structure):
    """A symmetric map of split vectors by its products with unit vectors; the transpose of another."""
    each = jax.vmap(lambda unit: structure.join(*times(structure.split(unit))))
    return np.asarray(jax.jit(each)(jnp.eye(structure.dim)))


@pytest.mark.turns(5)
@structures
def test_blocks_are_those_of_the_dense_hessian(structure, kind):
    structure = structure.with_kind(kind)
    precision, _ = quadratic(structure, kind)
    asked = []

    def hvp(v):
        asked.append(v.shape)
        return precision @ v

    blocks = blocks_of_hessian(hvp, structure, np.dtype(float))
    np.testing.assert_allclose(as_dense(blocks, structure), precision, rtol=0, atol=1e-12)
    assert len(asked) == 1
    expected = structure.k + structure.b * (3 if kind == "chain" else 1)
    assert product_count(structure) == expected


@pytest.mark.turns(3)
@structures
def test_blocks_in_a_basis(structure, kind):
    """B'HB from products with the basis, and from the blocks of H."""
    structure = structure.with_kind(kind)
    precision, _ = quadratic(structure, kind)
    basis = member(structure, kind, 7).basis()
    dense = columns(basis.times, structure).T
    expected = dense.T @ np.asarray(precision) @ dense
    found = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float), basis)
    plain = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float))
    # Sums of some hundred products of numbers of the size of the largest.
    size = np.max(np.abs(expected))
    for matrix in (found, plain.in_basis(basis)):
        np.testing.assert_allclose(as_dense(matrix, structure), expected, rtol=0, atol=1e-13 * size)


@pytest.mark.turns(3)
@structures
def test_elimination_solves_and_finds_the_covariance(structure, kind, key):
    structure = structure.with_kind(kind)
    precision, mean = quadratic(structure, kind)
    blocks = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float))
    right = jr.normal(key, (structure.dim,))
    solved = structure.join(*solve(blocks, structure.split(right)))
    # Condition numbers of these matrices are below 1e4.
    np.testing.assert_allclose(solved, np.linalg.solve(precision, right), rtol=1e-9, atol=1e-10)
    q = for_blocks(member(structure, kind), mean, blocks)
    covariance = covariance_of(q)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(q.mean(), mean)


@pytest.mark.turns(3, first=2)
@structures
def test_one_step_is_exact_for_a_gaussian(structure, kind, key):
    structure = structure.with_kind(kind)
    precision, mean = quadratic(structure, kind)
    q = member(structure, kind, 1)
    e = jr.normal(key, (3, structure.dim))
    found = averages(gaussian(precision, mean), q, jnp.concatenate([e, -e]), e)
    step = newton_step(q, found)
    np.testing.assert_allclose(step.q.mean(), mean, rtol=1e-9, atol=1e-10)
    covariance = covariance_of(step.q)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-9, atol=1e-10)
    assert step.clipped == 0


def counts(structure):
    """A log density with the structure: Poisson counts whose log rates are the locals.

    Chains are random walks; otherwise locals are spread around the first global, the second one is the
    log of a precision.
    """
    data = jnp.asarray(np.random.default_rng(0).poisson(3.0, (structure.b, structure.n)), float)

    def log_density(z):
        g, x = structure.split(z)
        center, log_precision = (g[0], g[1]) if structure.k > 1 else (0.5, 0.3)
        gaps = x[:, 1:] - x[:, :-1] if structure.chained else x - center
        prior = -0.5 * jnp.exp(log_precision) * jnp.sum(gaps**2) + 0.5 * gaps.size * log_precision
        within = -0.5 * jnp.sum((x[1:] - 0.4 * x[:-1]) ** 2) - 0.5 * jnp.sum(x**2) - 10 * jnp.sum(g**2)
        return prior + within + jnp.sum(data * x - jnp.exp(x))

    return log_density


def narrow(q):
    """Around one, with a tenth of the scales: there the counts' curvature is that of a peak."""
    root = jax.tree.map(lambda x: 0.1 * x, q.root())
    return q.with_root(1 + 0.1 * q.loc, root)


@pytest.mark.turns(3)
@structures
def test_steps_are_those_of_the_dense_formula(structure, kind, key):
    """Two steps, the second a short one from an average, against dense averages at the same points."""
    structure = structure.with_kind(kind)
    log_density, q = counts(structure), narrow(member(structure, kind, 2))
    some, many = jr.normal(key, (2, 4, structure.dim))
    before, precision = None, None

    @eqx.filter_jit
    def dense(q):
        hessians = jax.vmap(jax.hessian(log_density))(jax.vmap(q.transport)(some))
        return hessians, jax.vmap(jax.grad(log_density))(jax.vmap(q.transport)(many))

    for rho in (1.0, 0.3):
        step = newton_step(q, averages(log_density, q, many, some), before, jnp.asarray(rho))
        assert step.clipped == 0
        hessians, gradients = dense(q)
        fresh = -np.mean(hessians, axis=0)
        precision = fresh if precision is None else (1 - rho) * precision + rho * fresh
        gradient = np.mean(gradients, axis=0)
        center = np.asarray(q.mean()) + rho * np.linalg.solve(precision, gradient)
        np.testing.assert_allclose(step.q.mean(), center, rtol=1e-8, atol=1e-9)
        covariance = covariance_of(step.q)
        np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-7, atol=1e-9)
        q, before = step.q, step.curvature


@pytest.mark.parametrize("after", [0, 1, 5])
def test_steps_of_the_solver_are_whole_ones_and_then_ever_shorter(after):
    """The k-th after the whole ones is 2 / (k + 2) of the way to a Gaussian whose precision is known."""
    structure = STRUCTURES[0]
    precision, mean = quadratic(structure, "arrowhead")
    blocks = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float))
    q = for_blocks(member(structure, "arrowhead"), mean + 1, blocks)
    target = qg.Target.from_logdensity(gaussian(precision, mean), dim=structure.dim)
    session, solver = Recorder(Problem(target, q), key=jr.key(0)), BlockNewton()
    begun = solver.init(session, session.candidate(q, 0))
    step = solver.step(session, begun._replace(number=solver.full_steps + after - 1), None)
    np.testing.assert_allclose(step.members[0].mean(), mean + 1 - 2 / (after + 2), rtol=1e-8)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_curvature_that_is_no_peak_is_made_one(kind, key):
    """Between two modes: the step is finite, goes uphill, and says that it changed the curvature."""
    structure = STRUCTURES[0].with_kind(kind)

    def two_modes(z):
        return jnp.sum(jnp.logaddexp(-2 * (z - 1.5) ** 2, -2 * (z + 1.0) ** 2))

    made = Arrowhead if kind == "arrowhead" else Chain
    q = made.init(structure.dim, key=key, structure=structure, spread=0.1)
    q = eqx.tree_at(lambda q: q.local, q, jnp.full_like(q.local, -2.0))
    e = jr.normal(key, (8, structure.dim))
    found = averages(two_modes, q, e, e)
    step = newton_step(q, found)
    assert step.clipped > 0.01
    assert found.gradient @ (step.q.mean() - q.mean()) > 0
    covariance = np.asarray(covariance_of(step.q))
    assert np.linalg.eigvalsh(covariance)[0] > 0
    # No scale grows more than the bound on the curvature allows.
    assert np.all(np.diagonal(covariance) < 1.001e3 * np.asarray(q.variance()))


@pytest.mark.parametrize("kind", KINDS)
def test_clipping_leaves_what_is_positive_alone(kind):
    structure = STRUCTURES[0].with_kind(kind)
    precision, _ = quadratic(structure, kind)
    blocks = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float))
    plain, bounded = root_of_inverse(blocks), root_of_inverse(blocks, 1e-6)
    assert bounded.clipped == 0
    for a, b in zip(jax.tree.leaves(plain.root), jax.tree.leaves(bounded.root), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("kind", KINDS)
def test_decrement_is_what_a_step_gains(kind, key):
    """On a Gaussian away from it by a shift: half of the squared distance in its own metric."""
    structure = STRUCTURES[0].with_kind(kind)
    precision, mean = quadratic(structure, kind)
    shift = 0.1 * jr.normal(key, mean.shape)
    blocks = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float))
    q = for_blocks(member(structure, kind), mean + shift, blocks)
    e = jr.normal(key, (8, 16, structure.dim))
    gain = decrement(gaussian(precision, mean), q, e)
    # The covariance is right, so that the score takes away all noise but that of scales by the shift.
    assert gain.error > 0
    assert abs(gain.nats - 0.5 * shift @ precision @ shift) < 5 * gain.error
    there = decrement(gaussian(precision, mean), for_blocks(member(structure, kind), mean, blocks), e)
    assert abs(there.nats) < 1e-20


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_decrement_in_the_metric_of_the_target(kind, key):
    """Far too wide a q: its own covariance would promise too much along the way to the mean."""
    structure = STRUCTURES[0].with_kind(kind)
    precision, mean = quadratic(structure, kind)
    blocks = blocks_of_hessian(lambda v: precision @ v, structure, np.dtype(float))
    shift = 0.2 * jr.normal(key, mean.shape)
    q = for_blocks(member(structure, kind), mean + shift, jax.tree.map(lambda x: x / 9, blocks))
    e = jr.normal(key, (8, 32, structure.dim))
    both = jnp.concatenate([e, -e], axis=1)
    log_density = gaussian(precision, mean)
    step = newton_step(q, averages(log_density, q, both[0], both[0, :4]))
    gain = decrement(log_density, q, both, step.curvature)
    # Covariance 9 P^-1: the gradient by log scales is 1 - 9 each, over sqrt(2), and by others zero.
    expected = 0.5 * shift @ precision @ shift + 0.5 * structure.dim * 8**2 / 2
    assert abs(gain.nats - expected) < 5 * gain.error


def hierarchy(groups, dtype=float, rows=10):
    """Normal rows, and group means around mu with sd exp(log_tau)."""
    noise = np.random.default_rng(groups)
    theta = 1.0 + 0.7 * noise.normal(size=groups)
    means = jnp.asarray(theta + noise.normal(size=groups) / np.sqrt(rows), dtype)

    def log_density(z):
        mu, log_tau, theta = z[0], z[1], z[2:]
        prior = -0.5 * ((theta - mu) * jnp.exp(-log_tau)) ** 2 - log_tau
        likelihood = -0.5 * rows * (means - theta) ** 2
        return jnp.sum(prior) + jnp.sum(likelihood) - 0.5 * (mu**2 / 25 + log_tau**2)

    return log_density, Structure([0, 1], np.arange(2, groups + 2)[:, None])


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_hierarchy_of_many_groups(dtype, key):
    """Damped steps from unit scales around zero end where little is left to gain, in both precisions."""
    groups = 2000
    log_density, structure = hierarchy(groups, dtype)
    unit = MeanField(jnp.zeros(groups + 2, dtype), jnp.zeros(groups + 2, dtype))
    q = cast(Arrowhead.init(groups + 2, key=key, structure=structure), dtype).start_from(unit, key=key)

    @eqx.filter_jit
    def step(q, before, rho, key):
        e = jr.normal(key, (16, q.dim), dtype)
        both = jnp.concatenate([e, -e])
        return newton_step(q, averages(log_density, q, both, both[::4]), before, rho)

    before = own_curvature(q)
    for number in range(24):
        rho = 0.5 if number < 12 else 2.0 / (number - 7)
        q, before, _ = step(q, before, jnp.asarray(rho, dtype), jr.fold_in(key, number))
    e = jr.normal(jr.fold_in(key, 99), (8, 32, q.dim), dtype)
    gain = decrement(log_density, q, jnp.concatenate([e, -e], axis=1), before)
    # 8,000 parameters of scales, each known from some 300 draws of the last steps. What is noise in a
    # scale is some tenths of a relative curvature that varies with log_tau by a few per cent.
    assert gain.error < 0.1
    assert gain.nats < 0.5


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("kind", KINDS)
def test_own_curvature_is_the_precision(kind):
    structure = STRUCTURES[0].with_kind(kind)
    q = member(structure, kind)
    own = own_curvature(q)
    basis = columns(own.basis.times, structure).T
    covariance = np.asarray(covariance_of(q))
    expected = basis.T @ np.linalg.inv(covariance) @ basis
    np.testing.assert_allclose(as_dense(own.matrix, structure), expected, rtol=0, atol=1e-9)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_no_array_of_a_step_has_two_long_axes(kind):
    dim = 10_000
    structure = Structure([0, 1], np.arange(2, dim).reshape(-1, 2), kind)
    log_density, q = counts(structure), member(structure, kind)

    def step(q, e):
        first = newton_step(q, averages(log_density, q, e, e))
        return newton_step(first.q, averages(log_density, first.q, e, e), first.curvature, 0.5)

    arrays, static = eqx.partition(q, eqx.is_array)
    jaxpr = jax.make_jaxpr(lambda q, e: eqx.filter(step(eqx.combine(q, static), e), eqx.is_array))(
        arrays, jnp.zeros((3, dim))
    )
    sizes = [int(np.prod(shape)) for shape in arrays_within(jaxpr.jaxpr)]
    assert len(sizes) > 100
    # Products with at most sixteen probes at once, and a few numbers for each coordinate.
    assert max(sizes) < 40 * dim
