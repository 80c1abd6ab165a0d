"""Structured Gaussians: the contract of a family, the dense Gaussian that they stand for, and O(n)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from family_promises import DIMS, PROMISES, SMALL, promises_of
from oracles import assert_same
from structured_members import STRUCTURES, arrays_within, member
from subjects import cast

from quietgrad.families import Arrowhead, Chain, FullRank, LowRank, MeanField
from quietgrad.structure import Structure


def shuffled(dim, kind):
    """Up to two globals and blocks of up to two coordinates, in random places."""
    order, k = np.random.default_rng(dim).permutation(dim), min(2, dim)
    b = 2 if (dim - k) % 2 == 0 and dim > k else 1
    return Structure(order[:k], order[k:].reshape(-1, b), kind)


class ShuffledArrowhead(Arrowhead):
    """An arrowhead whose coordinates are in random order."""

    @classmethod
    def init(cls, dim, *, key, **settings):
        return super().init(dim, key=key, structure=shuffled(dim, "arrowhead"), **settings)


class ShuffledChain(Chain):
    """The same as a chain."""

    @classmethod
    def init(cls, dim, *, key, **settings):
        structure = shuffled(dim, "chain")
        if structure.n == 0:
            structure = Structure.leading(dim, globals=0, kind="chain")
        return super().init(dim, key=key, structure=structure, **settings)


MEMBERS = {
    "arrowhead": Arrowhead,
    "arrowhead-shuffled": ShuffledArrowhead,
    "chain": Chain,
    "chain-shuffled": ShuffledChain,
}


@pytest.fixture(autouse=True)
def registered(register):
    for name, made in MEMBERS.items():
        register(name, made)


@pytest.mark.turns(5)
@pytest.mark.parametrize("dim", [*DIMS[:2], pytest.param(DIMS[2], marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MEMBERS)
def test_they_keep_the_promises_of_a_family(name, dim):
    kept = [
        PROMISES[promise].check(case)
        for case, promise in promises_of(name, largest=SMALL)
        if case[1] == dim and case[2] is None
    ]
    assert len(kept) > 10


def dense(q):
    """R by its columns, in the target's coordinates."""
    return np.asarray(jax.jit(jax.jacobian(q.transport))(jnp.zeros(q.dim)))


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_the_precision_has_the_zeros_of_the_structure(structure, kind):
    """And nothing else is zero, so that the family has every such Gaussian."""
    q = member(structure, kind)
    precision = np.linalg.inv(dense(q) @ dense(q).T)
    block = np.full(q.dim, -1)
    for number, row in enumerate(np.asarray(structure.blocks)):
        block[row] = number
    apart = np.abs(block[:, None] - block[None, :])
    apart[block < 0], apart[:, block < 0] = 0, 0
    free = apart <= (1 if kind == "chain" else 0)
    size = np.max(np.abs(precision))
    assert np.all(np.abs(precision[~free]) < 1e-12 * size)
    assert np.all(np.abs(precision[free]) > 1e-8 * size)
    parameters = sum(x.size for x in jax.tree.leaves(eqx.filter(q, eqx.is_inexact_array)))
    assert parameters == q.dim + np.count_nonzero(np.tril(np.asarray(free)))


@pytest.mark.parametrize("made", [Arrowhead, Chain])
def test_random_starts_spread_as_they_are_asked_to_and_correlate_nothing(made, key):
    """Means and log sds are normal numbers of that spread, by the errors of their moments."""
    spread, dim = 0.3, 1000
    q = made.init(dim, key=key, spread=spread)
    for start in (q.mean(), 0.5 * jnp.log(q.variance())):
        assert abs(np.mean(start)) < 5 * spread / np.sqrt(dim)
        assert abs(np.mean(start**2) / spread**2 - 1) < 5 * np.sqrt(2 / dim)
    few = dense(made.init(7, key=key, spread=spread))
    np.testing.assert_array_equal(few, np.diag(np.diagonal(few)))


@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_mean_field_is_inside_and_low_rank_is_not(kind, key):
    q = member(STRUCTURES[0], kind)
    simple = MeanField(*jr.normal(key, (2, q.dim)))
    start = q.start_from(simple, key=key)
    assert type(start) is type(q)
    assert_same(start.transport(jnp.arange(10.0)), simple.transport(jnp.arange(10.0)), operations=4)
    with pytest.raises(ValueError, match="cannot start from this LowRank"):
        q.start_from(LowRank.init(q.dim, key=key), key=key)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_full_rank_has_them_inside(kind, key):
    q = member(STRUCTURES[2], kind)
    start = FullRank.init(q.dim, key=key).start_from(q, key=key)
    z = q.sample(key, 10)
    # Seven coordinates, and a covariance with a condition number below 1e3.
    assert_same(start.log_prob(z), q.log_prob(z), operations=1e3 * q.dim)


def test_another_structure_is_another_family(key):
    q = member(STRUCTURES[0], "arrowhead")
    other = Structure([0, 3], np.asarray(STRUCTURES[0].blocks))
    assert not q.contains(Arrowhead.init(q.dim, key=key, structure=other))
    assert q.contains(Arrowhead.init(q.dim, key=key, structure=q.structure))


@pytest.mark.parametrize(
    ("globals", "blocks", "words"),
    [
        ([0, 1], [[1], [2]], "given twice: 1; missing: 3"),
        ([0], [1, 2], r"got shapes \(1,\) and \(2,\)"),
        ([5], [[1], [0]], "missing: 2"),
        ([], np.zeros((0, 1)), r"got shapes \(0,\) and \(0, 1\)"),
    ],
)
def test_structures_that_are_none_are_refused(globals, blocks, words):
    with pytest.raises(ValueError, match=words):
        Structure(globals, blocks)


@pytest.mark.parametrize(("globals", "blocks"), [([], [[0]]), ([0], np.zeros((0, 1)))])
def test_a_single_coordinate_is_a_structure(globals, blocks):
    """Be it a local or a global one."""
    structure = Structure(globals, blocks)
    assert (structure.dim, structure.k, structure.n) == (1, len(globals), len(blocks))
    g, own = structure.split(jnp.array([3.0]))
    assert (g.shape, own.shape) == ((len(globals),), (1, len(blocks)))
    assert np.array_equal(structure.join(g, own), [3.0])


def test_a_structure_of_the_wrong_kind_or_length_is_refused(key):
    with pytest.raises(ValueError, match="got one of kind 'arrowhead' with 10"):
        Chain.init(10, key=key, structure=STRUCTURES[0])


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_single_precision_holds_narrow_scales(kind):
    """Scales of 1e-3 to 1e3 beside each other: log q is off by rounding only."""
    dim = 1502
    structure = Structure([0, 1], np.arange(2, dim).reshape(-1, 3), kind)
    q = member(structure, kind)
    log_std = np.log(10.0) * np.linspace(-3, 3, structure.n)
    low = cast(eqx.tree_at(lambda q: q.local, q, q.local.at[:3].add(log_std)), jnp.float32)
    high = cast(low, jnp.float64)
    e = np.random.default_rng(1).normal(size=dim).astype(np.float32)
    found = eqx.filter_jit(lambda q, e: q.transport_and_score(e))(low, jnp.asarray(e))
    truth = eqx.filter_jit(lambda q, e: q.transport_and_score(e))(high, jnp.asarray(e, jnp.float64))
    eps = float(np.finfo(np.float32).eps)
    assert {x.dtype for x in found} == {jnp.dtype("float32")}
    # log q sums |e|^2 / 2 and log scales, at most 7 each, over 1,502 coordinates, rounded as they grow.
    assert abs(float(found[1]) - float(truth[1])) < 8 * eps * dim * 7
    scores = np.asarray(found[2], float), np.asarray(truth[2])
    # A row of R^-T has at most six entries beside the border; what they add up to may cancel.
    assert np.max(np.abs(scores[0] - scores[1])) < 100 * eps * np.max(np.abs(scores[1]))


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_no_array_has_two_long_axes(kind):
    """At dim 10,000, of draws, density, score, entropy, moments and their derivatives."""
    dim = 10_000
    q = member(Structure([0, 1], np.arange(2, dim).reshape(-1, 2), kind), kind)

    def everything(q, e):
        z, log_prob, score = q.transport_and_score(e)
        moments = jnp.sum(q.variance()) + jnp.sum(q.covariance_matmul(z[:, None]))
        pulled = q.scale_gradient(e[None], score[None])
        return log_prob + q.log_prob(z) + jnp.sum(score) + q.entropy() + moments + jnp.sum(pulled)

    params, static = eqx.partition(q, eqx.is_inexact_array)
    jaxpr = jax.make_jaxpr(jax.grad(lambda p, e: everything(eqx.combine(p, static), e)))(
        params, jnp.zeros(dim)
    )
    sizes = [int(np.prod(shape)) for shape in arrays_within(jaxpr.jaxpr)]
    assert len(sizes) > 100
    # Some tens of numbers for each coordinate; a square would have 10,000.
    assert max(sizes) < 30 * dim


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_scale_gradient_is_the_natural_gradient(kind):
    """Half its squared length is half of g'F^-1 g, with g and F by autodiff over R's parameters."""
    q = member(Structure([3, 0], [[1, 5], [2, 4], [6, 7]]), kind)
    root = np.random.default_rng(3).normal(size=(q.dim, q.dim))
    precision = jnp.asarray(root @ root.T + np.eye(q.dim))
    params, static = eqx.partition(q, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(eqx.tree_at(lambda p: p.loc, params, None))

    def at(flat):
        return eqx.combine(eqx.tree_at(lambda p: p.loc, unravel(flat), q.loc, is_leaf=_none), static)

    def elbo(flat):
        """Of the density exp(-z'Pz/2) with its peak at q's mean."""
        covariance = at(flat).covariance_matmul(jnp.eye(q.dim))
        return -0.5 * jnp.trace(precision @ covariance) + at(flat).entropy()

    def divergence(flat):
        """KL(q || q with these parameters), whose Hessian at q is the Fisher information."""
        inverse = jnp.linalg.inv(at(flat).covariance_matmul(jnp.eye(q.dim)))
        here = q.covariance_matmul(jnp.eye(q.dim))
        return 0.5 * jnp.trace(inverse @ here) - 0.5 * jnp.linalg.slogdet(inverse)[1]

    gradient, fisher = jax.jit(lambda x: (jax.grad(elbo)(x), jax.hessian(divergence)(x)))(flat)
    expected = 0.5 * gradient @ jnp.linalg.solve(fisher, gradient)
    # The mean over all draws, by draws with the moments of the base to second order.
    e = jnp.sqrt(q.dim) * jnp.concatenate([jnp.eye(q.dim), -jnp.eye(q.dim)])
    slope = -(jax.vmap(q.transport)(e) - q.loc[None, :]) @ precision
    found = 0.5 * jnp.sum(q.scale_gradient(e, slope) ** 2)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def _none(x):
    return x is None
