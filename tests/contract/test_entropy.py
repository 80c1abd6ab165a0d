"""Every entropy mode on every family: equal to its definition draw by draw, unbiased on every base."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, assert_same, by_quadrature, flat
from subjects import EXACT, FLOWS, family, key_of, other_bases, target_2d

from quietgrad import families
from quietgrad.estimators import Pathwise, entropy

REPLICATIONS = 4000


def variants(name):
    """What a family is computed in and stands on.

    Double precision on its own base is a case of the estimators' contract.
    """
    return [(None, jnp.float32), *((base, jnp.float64) for base in other_bases(name))]


def takers(name):
    return [mode for mode in entropy.REGISTRY if refusal(mode, name) is None]


def often(mode, name, turn):
    """Whether a case is for every run: each mode meets each kind of family, and each variant of some.

    Flows differ by their layers, which no mode sees: they are one kind, and take turns in it. A base
    and a precision enter a mode by numbers alone: from variant to variant the modes take turns.
    """
    modes = takers(name)
    if name in FLOWS:
        return FLOWS.index(name) == turn % len(FLOWS) and modes.index(mode) == turn % len(modes)
    number = list(families.REGISTRY).index(name)
    return len(variants(name)) == 1 or modes.index(mode) == (number + turn) % len(modes)


def marked():
    """All cases, with their marks."""
    for name in EXACT:
        for mode, (turn, variant) in itertools.product(takers(name), enumerate(variants(name))):
            marks = () if often(mode, name, turn) else pytest.mark.slow
            yield pytest.param((mode, name, *variant), marks=marks)


def one_flow(mode, name):
    """Marks of a pair: each mode meets one of the flows, in turn."""
    if name not in FLOWS or mode not in takers(name):
        return ()
    number = list(entropy.REGISTRY).index(mode)
    return () if FLOWS.index(name) == number % len(FLOWS) else (pytest.mark.slow,)


def label(case):
    mode, name, base, dtype = case
    return f"{mode}-{name}-{base or dtype.__name__}"


def refusal(mode, name):
    return entropy.REGISTRY[mode]().refuses(family(name, 2, small=True))


@functools.cache
def quadrature(name, base, dtype):
    """In double precision, at the rounded parameters."""
    rounded = family(name, 2, base, small=True, dtype=dtype)
    exact = jax.tree.map(lambda x: x.astype(float) if eqx.is_inexact_array(x) else x, rounded)
    return by_quadrature(target_2d("curved"), exact)


@eqx.filter_jit
def _replicate(estimator, target, q, keys):
    def one(key):
        estimate, _ = estimator.step(target, q, estimator.init(target, q), key=key)
        return flat(estimate.grad, estimate.elbo)

    return jax.lax.map(one, keys, batch_size=500)


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", list(marked()), ids=label, scope="module")
def test_mean_matches_quadrature(case):
    mode, name, base, dtype = case
    q = family(name, 2, base, small=True, dtype=dtype)
    keys = jr.split(key_of(label(case)), REPLICATIONS)
    samples = _replicate(Pathwise(draws=8, entropy=mode), target_2d("curved", dtype), q, keys)
    assert samples.dtype == dtype
    truth = quadrature(name, base, dtype)
    assert_mean(samples, truth.value, slack=truth.error)


def sampled(target, q, frozen, z, log_q):
    return target.log_density(z) - log_q


def closed(target, q, frozen, z, log_q):
    return target.log_density(z) + q.entropy()


def stl(target, q, frozen, z, log_q):
    return target.log_density(z) - frozen.log_prob(z)


DEFINITIONS = {"sampled": sampled, "closed": closed, "stl": stl}


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mode", "name"),
    [pytest.param(m, n, marks=one_flow(m, n)) for m in DEFINITIONS for n in EXACT],
)
def test_pull_back_is_autodiff_of_the_definition(mode, name):
    """At fixed draws and uneven weights; `frozen` is q with its parameters held still."""
    if (reason := refusal(mode, name)) is not None:
        assert type(family(name, 2, small=True)).__name__ in reason
        return
    q, target = family(name, 2, small=True), target_2d("curved")
    params, static = eqx.partition(q, eqx.is_inexact_array)
    e = jnp.asarray(np.random.default_rng(0).normal(size=(5, q.base_dim)))
    w = jnp.array([0.1, 0.4, 0.2, 0.0, 0.3])

    @eqx.filter_jit
    def ours(q):
        path = entropy.REGISTRY[mode]().path(q, e)
        return path.pull_back(jax.vmap(jax.grad(target.log_density))(path.z), w)

    @jax.jit
    @jax.grad
    def definition(params):
        moving = eqx.combine(params, static)
        z, log_q = jax.vmap(moving.transport_and_log_prob)(e)
        return w @ jax.vmap(lambda z, log_q: DEFINITIONS[mode](target, moving, q, z, log_q))(z, log_q)

    # The longest chain is two networks forwards and backwards, some hundred additions.
    assert_same(ours(q), definition(params), operations=100)


def test_every_registered_mode_has_a_definition_here():
    assert set(DEFINITIONS) == set(entropy.REGISTRY)
