"""What every family promises, at awkward and at large dimensions, on every base it takes.

Asked of the registered families, and of one that a test registers.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jaxtyping import Array
from oracles import assert_mean, assert_same
from subjects import cast, family, key_of, other_bases

from quietgrad import families
from quietgrad.estimators import entropy, samplers
from quietgrad.families import (
    AbstractFamily,
    EstimatesDensity,
    HasEntropy,
    HasHostDensity,
    HasMoments,
    HasPathMetric,
    Invertible,
)

DIMS = (1, 2, 37, 653)
# Dense Jacobians are for small cases: full rank has 214,184 parameters at dim 653.
SMALL = 37
# A registered family, its dimension, and a base if it is not the family's own.
Case = tuple[str, int, str | None]


class Promise(NamedTuple):
    """A check of a case, for families with a capability and between two dimensions."""

    check: Callable[[Case], None]
    needs: type
    smallest: int
    largest: int
    own_base: bool
    exact: bool

    def concerns(self, case: Case) -> bool:
        name, dim, base = case
        return (
            issubclass(families.REGISTRY[name], self.needs)
            and self.smallest <= dim <= self.largest
            and not (self.own_base and base)
            and not (self.exact and issubclass(families.REGISTRY[name], EstimatesDensity))
        )


PROMISES: dict[str, Promise] = {}


def promise(
    *,
    needs: type = AbstractFamily,
    smallest: int = DIMS[0],
    largest: int = DIMS[-1],
    own_base: bool = False,
    exact: bool = False,
):
    """Add a check to the promises; `exact` is for families whose log q is not an estimate."""

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        PROMISES[check.__name__] = Promise(check, needs, smallest, largest, own_base, exact)
        return check

    return add


def cases_of(name: str) -> list[Case]:
    """A family at every dimension, and in two on every other base."""
    bases: list[Case] = [(name, 2, base) for base in other_bases(name)]
    return [*((name, dim, None) for dim in DIMS), *bases]


def promises_of(name: str, largest: int = DIMS[-1]) -> Iterator[tuple[Case, str]]:
    """All that a family promises up to a dimension: cases, each with the promises that concern it."""
    for case in cases_of(name):
        if case[1] > largest:
            continue
        yield from ((case, kept) for kept, made in PROMISES.items() if made.concerns(case))


@eqx.filter_jit
def _facts(q, e, names=()):
    """What is compared, from one compilation: all of it, or the facts of these names."""
    z = jax.vmap(q.transport)(e)
    facts = {
        "z": lambda: z,
        "with_log_prob": lambda: jax.vmap(q.transport_and_log_prob)(e),
        "with_score": lambda: jax.vmap(q.transport_and_score)(e),
        "last_with_score": lambda: q.transport_and_score(e[-1]),
        "log_prob_and_slope": lambda: jax.vmap(jax.value_and_grad(q.log_prob))(z),
        "log_prob_of_batch": lambda: q.log_prob(z.reshape(2, 3, q.dim)),
    }
    if isinstance(q, Invertible):
        facts["inverse"] = lambda: jax.vmap(q.inverse)(z)
    if isinstance(q, HasMoments):
        facts["mean"], facts["variance"] = q.mean, q.variance
        facts["covariance"] = lambda: q.covariance_matmul(jnp.eye(q.dim, dtype=q.dtype))
    if isinstance(q, HasPathMetric):
        facts["path_metric"] = lambda: q.path_metric(e[0])
        facts["path_metrics"] = lambda: q.path_metrics(e[0])
    return {"e": e, **{name: fact() for name, fact in facts.items() if not names or name in names}}


def facts_of(case: Case, *names: str) -> dict[str, Any]:
    """The facts at six draws; what they must satisfy holds at any draw, whatever its law.

    In two dimensions, where most promises are asked, all of them are found together.
    """
    return _found(case, () if case[1:] == (2, None) else names)


@functools.cache
def _found(case: Case, names: tuple[str, ...]) -> dict[str, Any]:
    q = family(*case)
    return _facts(q, jnp.asarray(np.random.default_rng(0).normal(size=(6, q.base_dim))), names)


def operations(case: Case) -> float:
    """Additions on the longest path: sums over the base draw, and solves along it."""
    q = family(*case)
    # Nodes of an estimate are at a mode that Newton steps have found: some hundred operations in a row.
    # A coordinate by itself takes some 16, most of them in the quotients of a spline.
    return (100 if isinstance(q, EstimatesDensity) else 1) * 4 * (q.base_dim + 16)


@promise()
def three_transports_agree(case: Case) -> None:
    facts = facts_of(case, "z", "with_log_prob", "with_score")
    assert facts["z"].shape == (6, case[1])
    assert_same(facts["with_log_prob"][0], facts["z"], operations=operations(case))
    assert_same(facts["with_score"][:2], facts["with_log_prob"], operations=operations(case))


@promise(exact=True)
def log_prob_of_the_draw_is_that_of_the_point(case: Case) -> None:
    facts = facts_of(case, "log_prob_and_slope", "with_log_prob")
    log_prob = facts["log_prob_and_slope"][0]
    assert_same(log_prob, facts["with_log_prob"][1], operations=operations(case))


@promise(needs=HasHostDensity)
def log_prob_at_points_is_the_same_on_the_host(case: Case) -> None:
    facts, q = facts_of(case, "z", "log_prob_and_slope"), family(*case)
    assert isinstance(q, HasHostDensity)
    found = q.host_log_prob_at(np.asarray(facts["z"]))
    assert_same(found, facts["log_prob_and_slope"][0], operations=operations(case))


@promise(exact=True)
def score_is_the_derivative_of_log_prob(case: Case) -> None:
    facts = facts_of(case, "log_prob_and_slope", "with_score")
    slope = facts["log_prob_and_slope"][1]
    assert_same(slope, facts["with_score"][2], operations=operations(case))


@promise(needs=Invertible)
def inverse_undoes_transport(case: Case) -> None:
    facts = facts_of(case, "inverse")
    assert_same(facts["inverse"], facts["e"], operations=operations(case))


@promise(needs=Invertible, largest=SMALL)
def log_prob_is_a_change_of_variables(case: Case) -> None:
    facts = facts_of(case, "log_prob_and_slope")
    q, e = family(*case), facts["e"][0]
    _, log_det = np.linalg.slogdet(jax.jit(jax.jacobian(q.transport))(e))
    expected = jnp.sum(q.base.log_prob(e)) - log_det
    assert_same(facts["log_prob_and_slope"][0][0], expected, operations=operations(case))


@promise(needs=HasMoments, own_base=True)
def gaussian_log_prob_matches_scipy(case: Case) -> None:
    facts = facts_of(case, "z", "mean", "covariance", "log_prob_and_slope")
    expected = scipy.stats.multivariate_normal.logpdf(
        facts["z"], facts["mean"], facts["covariance"], allow_singular=False
    )
    # SciPy works from the dense covariance, whose condition number is at most 1e4 here.
    assert_same(facts["log_prob_and_slope"][0], expected, operations=1e2 * operations(case))


@promise(needs=HasEntropy)
def entropy_is_minus_the_mean_log_prob(case: Case) -> None:
    q = family(*case)
    uniform = np.random.default_rng(0).uniform(size=(2000, q.base_dim))
    log_prob = eqx.filter_jit(
        lambda q, e: jax.lax.map(lambda row: q.transport_and_log_prob(row)[1], e, batch_size=250)
    )
    assert_mean(-log_prob(q, q.base.quantile(jnp.asarray(uniform))), q.entropy())


@promise(needs=HasMoments)
def variance_is_the_diagonal_of_the_covariance(case: Case) -> None:
    facts = facts_of(case, "variance", "covariance")
    assert_same(facts["variance"], np.diagonal(facts["covariance"]), operations=operations(case))


@promise(needs=HasMoments, largest=SMALL)
def moments_are_those_of_an_affine_map(case: Case) -> None:
    """z = mu + A e with A by autodiff, so E z = mu and Cov z = Var(e) A A'."""
    facts, q = facts_of(case, "z", "mean", "covariance"), family(*case)
    matrix = np.asarray(jax.jit(jax.jacobian(q.transport))(facts["e"][0]))
    covariance = q.base.variance * matrix @ matrix.T
    mean = facts["z"][0] - matrix @ facts["e"][0]
    assert_same(facts["mean"], mean, operations=operations(case))
    assert_same(facts["covariance"], covariance, operations=operations(case))


@promise(needs=HasMoments, largest=SMALL)
def covariance_trace_is_that_of_the_product(case: Case) -> None:
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


@promise(needs=HasPathMetric, largest=SMALL)
def path_metrics_are_squared_jacobians_in_the_parameters(case: Case) -> None:
    """Block by block, and together; rows of each Jacobian are orthogonal."""
    facts, q = facts_of(case, "path_metrics", "path_metric"), family(*case)
    params, static = eqx.partition(q, eqx.is_inexact_array)
    jacobian = jax.jit(jax.jacobian(lambda p: eqx.combine(p, static).transport(facts["e"][0])))(params)
    blocks = {
        name: np.asarray(x).reshape(q.dim, -1) for name, x in vars(jacobian).items() if eqx.is_array(x)
    }
    grams = {name: block @ block.T for name, block in blocks.items()}
    metrics = {name: np.diag(metric) for name, metric in facts["path_metrics"].items()}
    assert_same(metrics, grams, operations=operations(case))
    assert_same(np.diag(facts["path_metric"]), sum(grams.values()), operations=operations(case))


@promise()
def vmap_is_a_loop(case: Case) -> None:
    facts = facts_of(case, "with_score", "last_with_score")
    last = jax.tree.map(lambda x: x[-1], facts["with_score"])
    assert_same(last, facts["last_with_score"], operations=operations(case))


# Python's part in a transport is that of its layers, which are the same on every base.
@promise(smallest=2, largest=2, own_base=True)
def jit_changes_nothing(case: Case) -> None:
    facts, q = facts_of(case, "with_score"), family(*case)
    compiled = jax.tree.map(lambda x: x[0], facts["with_score"])
    assert_same(compiled, q.transport_and_score(facts["e"][0]), operations=operations(case))


@promise()
def log_prob_takes_any_batch(case: Case) -> None:
    facts = facts_of(case, "log_prob_and_slope", "log_prob_of_batch")
    one_by_one = facts["log_prob_and_slope"][0]
    assert_same(facts["log_prob_of_batch"], one_by_one.reshape(2, 3), operations=operations(case))


@promise(smallest=2, largest=2)
def samples_are_transported_base_draws(case: Case) -> None:
    @eqx.filter_jit
    def both(q: AbstractFamily, key: Array) -> tuple[Array, Array]:
        e = q.base.sample((4, q.base_dim), q.dtype, key=key)
        return q.sample(key, 4), jax.vmap(q.transport)(e)

    q, key = family(*case), key_of("samples")
    assert_same(*both(q, key), operations=operations(case))
    assert jax.eval_shape(q.sample, key).shape == (1, q.dim)


# What is promoted is promoted in two dimensions too.
@promise(smallest=2, largest=2)
def single_precision_stays_single(case: Case) -> None:
    low = cast(family(*case), jnp.float32)
    e = jax.eval_shape(lambda key: low.base.sample((6, low.base_dim), low.dtype, key=key), jr.key(0))
    made = jax.tree.leaves(eqx.filter_eval_shape(_facts, low, e))
    if isinstance(low, HasEntropy):
        made.append(low.entropy())
    assert {x.dtype for x in made} == {jnp.dtype("float32")}


@promise(largest=1)
def start_is_random_and_repeatable(case: Case) -> None:
    starts = (families.REGISTRY[case[0]].init(2, key=jr.key(s)) for s in (0, 0, 1))
    # In numpy, for which nothing is compiled.
    first, again, other = (
        [np.asarray(x) for x in jax.tree.leaves(eqx.filter(q, eqx.is_inexact_array))] for q in starts
    )
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))
    assert all(np.all(np.isfinite(x)) for x in first)


@promise(largest=2)
def contained_families_are_starts(case: Case) -> None:
    """What `contains` says is what `start_from` does, and the start is close to what it starts from."""
    q, key = family(*case), key_of("starts")
    for name in families.REGISTRY:
        others = [None] if case[2] is None or case[2] not in other_bases(name) else [None, case[2]]
        for other in (family(name, case[1], base) for base in others):
            if not q.contains(other):
                with pytest.raises(ValueError, match=f"{type(q).__name__} cannot start from"):
                    q.start_from(other, key=key)
                continue
            start = q.start_from(other, key=key)
            assert type(start) is type(q)
            assert start.contains(q)
            # Factors of 5 % of the scales change variances by some per cent, and log q by less than that
            # for each squared standard deviation, of which 100 draws in 2 dimensions have some 20.
            z, expected = _draws_of(other, key)
            np.testing.assert_allclose(_log_prob(start, z), expected, rtol=0, atol=0.5)


# Two programs, so that all starts of a family share one, whatever they start from.
@eqx.filter_jit
def _draws_of(other: AbstractFamily, key: Array) -> tuple[Array, Array]:
    z = other.sample(key, 100)
    return z, other.log_prob(z)


@eqx.filter_jit
def _log_prob(start: AbstractFamily, z: Array) -> Array:
    return start.log_prob(z)


@promise(largest=2)
def advice_can_be_followed(case: Case) -> None:
    """Registered samplers and entropy modes, numbers of draws they take, and rates that are rates."""
    q = family(*case)
    advice = q.advice
    search = samplers.REGISTRY[advice.search_sampler]()
    assert search.refuses(advice.search_draws, q.base, q.base_dim) is None
    # Pairs are among what `quiet` chooses from.
    assert advice.quiet_draws >= 2
    assert advice.quiet_draws % 2 == 0
    assert entropy.REGISTRY[advice.search_entropy]().refuses(q) is None
    assert 0 < advice.explore_rate <= 0.1
    assert 0 < advice.near_rate <= advice.anneal_rate <= advice.most_anneal_rate
    assert advice.quadratic_rank >= 1
