"""What every registered family promises, at awkward and at large dimensions, on every base it takes."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, assert_same
from subjects import cast, family, other_bases

from quietgrad import families
from quietgrad.families import AbstractFamily, HasEntropy, HasMoments, Invertible

DIMS = (1, 2, 37, 653)
# Dense Jacobians are for small cases: full rank has 214,184 parameters at dim 653.
SMALL = 37
CASES = [(name, dim, None) for name in families.REGISTRY for dim in DIMS] + [
    (name, 2, base) for name in families.REGISTRY for base in other_bases(name)
]


def cases(*, needs=AbstractFamily, largest=DIMS[-1], own_base=False):
    """The cases whose family has a capability, with readable ids."""
    chosen = [
        pytest.param(case, id="-".join(str(part) for part in case if part is not None))
        for case in CASES
        if issubclass(families.REGISTRY[case[0]], needs)
        and case[1] <= largest
        and not (own_base and case[2])
    ]
    # Module scope groups the tests of a case, which share what is compiled for it.
    return pytest.mark.parametrize("case", chosen, scope="module")


@eqx.filter_jit
def _facts(q, e):
    """All that is compared, from one compilation."""
    z = jax.vmap(q.transport)(e)
    facts = {
        "e": e,
        "z": z,
        "with_log_prob": jax.vmap(q.transport_and_log_prob)(e),
        "with_score": jax.vmap(q.transport_and_score)(e),
        "last_with_score": q.transport_and_score(e[-1]),
        "log_prob_and_slope": jax.vmap(jax.value_and_grad(q.log_prob))(z),
        "log_prob_of_batch": q.log_prob(z.reshape(2, 3, q.dim)),
    }
    if isinstance(q, Invertible):
        facts["inverse"] = jax.vmap(q.inverse)(z)
    if isinstance(q, HasMoments):
        facts["mean"], facts["variance"] = q.mean(), q.variance()
        facts["covariance"] = q.covariance_matmul(jnp.eye(q.dim, dtype=q.dtype))
        facts["path_metric"], facts["path_metrics"] = q.path_metric(e[0]), q.path_metrics(e[0])
    return facts


@functools.cache
def facts_of(case):
    """The facts at six draws; what they must satisfy holds at any draw, whatever its law."""
    q = family(*case)
    return _facts(q, jnp.asarray(np.random.default_rng(0).normal(size=(6, q.base_dim))))


def operations(case):
    """Additions on the longest path: sums over the base draw, and solves along it."""
    return 4 * (family(*case).base_dim + 8)


@cases()
def test_three_transports_agree(case):
    facts = facts_of(case)
    assert facts["z"].shape == (6, case[1])
    assert_same(facts["with_log_prob"][0], facts["z"], operations=operations(case))
    assert_same(facts["with_score"][:2], facts["with_log_prob"], operations=operations(case))


@cases()
def test_log_prob_of_the_draw_is_that_of_the_point(case):
    facts = facts_of(case)
    log_prob = facts["log_prob_and_slope"][0]
    assert_same(log_prob, facts["with_log_prob"][1], operations=operations(case))


@cases()
def test_score_is_the_derivative_of_log_prob(case):
    facts = facts_of(case)
    slope = facts["log_prob_and_slope"][1]
    assert_same(slope, facts["with_score"][2], operations=operations(case))


@cases(needs=Invertible)
def test_inverse_undoes_transport(case):
    facts = facts_of(case)
    assert_same(facts["inverse"], facts["e"], operations=operations(case))


@cases(needs=Invertible, largest=SMALL)
def test_log_prob_is_a_change_of_variables(case):
    facts = facts_of(case)
    q, e = family(*case), facts["e"][0]
    _, log_det = np.linalg.slogdet(jax.jit(jax.jacobian(q.transport))(e))
    expected = jnp.sum(q.base.log_prob(e)) - log_det
    assert_same(facts["log_prob_and_slope"][0][0], expected, operations=operations(case))


@cases(needs=HasMoments, own_base=True)
def test_gaussian_log_prob_matches_scipy(case):
    facts = facts_of(case)
    expected = scipy.stats.multivariate_normal.logpdf(
        facts["z"], facts["mean"], facts["covariance"], allow_singular=False
    )
    # SciPy works from the dense covariance, whose condition number is at most 1e4 here.
    assert_same(facts["log_prob_and_slope"][0], expected, operations=1e2 * operations(case))


@cases(needs=HasEntropy)
def test_entropy_is_minus_the_mean_log_prob(case):
    q = family(*case)
    uniform = np.random.default_rng(0).uniform(size=(2000, q.base_dim))
    log_prob = eqx.filter_jit(
        lambda q, e: jax.lax.map(lambda row: q.transport_and_log_prob(row)[1], e, batch_size=250)
    )
    assert_mean(-log_prob(q, q.base.quantile(jnp.asarray(uniform))), q.entropy())


@cases(needs=HasMoments)
def test_variance_is_the_diagonal_of_the_covariance(case):
    facts = facts_of(case)
    assert_same(facts["variance"], np.diagonal(facts["covariance"]), operations=operations(case))


@cases(needs=HasMoments, largest=SMALL)
def test_moments_are_those_of_an_affine_map(case):
    """z = mu + A e with A by autodiff, so E z = mu and Cov z = Var(e) A A'."""
    facts, q = facts_of(case), family(*case)
    matrix = np.asarray(jax.jit(jax.jacobian(q.transport))(facts["e"][0]))
    covariance = q.base.variance * matrix @ matrix.T
    mean = facts["z"][0] - matrix @ facts["e"][0]
    assert_same(facts["mean"], mean, operations=operations(case))
    assert_same(facts["covariance"], covariance, operations=operations(case))


@cases(needs=HasMoments, largest=SMALL)
def test_covariance_trace_is_that_of_the_product(case):
    """tr(B Cov z) with its first and second derivatives, which have rules of their own."""
    q = family(*case)
    root = np.random.default_rng(1).normal(size=(q.dim, q.dim))
    matrix = jnp.asarray(root + root.T)
    params, static = eqx.partition(q, eqx.is_inexact_array)

    def fast(params):
        q = eqx.combine(params, static)
        return q.covariance_trace(lambda rows: rows @ matrix, jnp.diagonal(matrix))

    def literal(params):
        return jnp.trace(eqx.combine(params, static).covariance_matmul(matrix))

    def derivatives(function):
        gradient, push = jax.linearize(jax.grad(function), params)
        return function(params), gradient, push(params)

    found, expected = jax.jit(lambda: (derivatives(fast), derivatives(literal)))()
    assert_same(found, expected, operations=operations(case) * q.dim)


@cases(needs=HasMoments, largest=SMALL)
def test_path_metrics_are_squared_jacobians_in_the_parameters(case):
    """Block by block, and together; rows of each Jacobian are orthogonal."""
    facts, q = facts_of(case), family(*case)
    params, static = eqx.partition(q, eqx.is_inexact_array)
    jacobian = jax.jit(jax.jacobian(lambda p: eqx.combine(p, static).transport(facts["e"][0])))(params)
    blocks = {
        name: np.asarray(x).reshape(q.dim, -1) for name, x in vars(jacobian).items() if eqx.is_array(x)
    }
    grams = {name: block @ block.T for name, block in blocks.items()}
    metrics = {name: np.diag(metric) for name, metric in facts["path_metrics"].items()}
    assert_same(metrics, grams, operations=operations(case))
    assert_same(np.diag(facts["path_metric"]), sum(grams.values()), operations=operations(case))


@cases()
def test_vmap_is_a_loop(case):
    facts = facts_of(case)
    last = jax.tree.map(lambda x: x[-1], facts["with_score"])
    assert_same(last, facts["last_with_score"], operations=operations(case))


@cases(largest=2)
def test_jit_changes_nothing(case):
    facts, q = facts_of(case), family(*case)
    compiled = jax.tree.map(lambda x: x[0], facts["with_score"])
    assert_same(compiled, q.transport_and_score(facts["e"][0]), operations=operations(case))


@cases()
def test_log_prob_takes_any_batch(case):
    facts = facts_of(case)
    one_by_one = facts["log_prob_and_slope"][0]
    assert_same(facts["log_prob_of_batch"], one_by_one.reshape(2, 3), operations=operations(case))


@cases(largest=2)
def test_samples_are_transported_base_draws(case, key):
    q = family(*case)
    e = q.base.sample((4, q.base_dim), q.dtype, key=key)
    assert_same(q.sample(key, 4), jax.vmap(q.transport)(e), operations=operations(case))
    assert q.sample(key).shape == (1, q.dim)


@cases()
def test_single_precision_stays_single(case):
    low = cast(family(*case), jnp.float32)
    e = jax.eval_shape(lambda key: low.base.sample((6, low.base_dim), low.dtype, key=key), jr.key(0))
    made = jax.tree.leaves(eqx.filter_eval_shape(_facts, low, e))
    if isinstance(low, HasEntropy):
        made.append(low.entropy())
    assert {x.dtype for x in made} == {jnp.dtype("float32")}


@pytest.mark.parametrize("name", families.REGISTRY)
def test_start_is_random_and_repeatable(name):
    first, again, other = (families.REGISTRY[name].init(2, key=jr.key(s)) for s in (0, 0, 1))
    assert eqx.tree_equal(first, again)
    assert not eqx.tree_equal(first, other)
    assert np.all(np.isfinite(ravel_pytree(eqx.filter(first, eqx.is_inexact_array))[0]))
