"""What every registered estimator promises on every family: the gradient of the ELBO, or a stated bias.

The mean over `REPLICATIONS` estimates is compared with quadrature by a z-test, in every coordinate of
the gradient and for the ELBO. State is advanced for some steps first and then held fixed.
"""

import functools
import inspect
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, assert_same, by_fixed_draws, by_quadrature, excess, flat
from subjects import TARGETS, TRACES, accepted, cast, family, key_of, target_2d

from quietgrad import entropy, estimators, families
from quietgrad.estimators import Pathwise

REPLICATIONS = 4000
DRAWS = 8
WARM_UP = 10


class Case(NamedTuple):
    name: str
    family: str
    mode: str | None

    def __str__(self):
        return "-".join(part for part in self if part is not None)

    def estimator(self):
        make = estimators.REGISTRY[self.name]
        mode = {} if self.mode is None else {"entropy": self.mode}
        return make(**accepted(make, draws=DRAWS), **mode)

    def baseline(self):
        """The plain estimator, which sees the same draws for the same key wherever it can."""
        return Pathwise(draws=DRAWS, entropy=self.mode or "sampled")

    def q(self):
        return family(self.family, 2, small=True)


def modes(make):
    return list(entropy.REGISTRY) if "entropy" in inspect.signature(make).parameters else [None]


CASES = [
    Case(name, kind, mode)
    for name, make in estimators.REGISTRY.items()
    for kind in families.REGISTRY
    for mode in modes(make)
]


@functools.cache
def objection(case):
    return case.estimator().supports(target_2d("curved"), case.q())


def cases(chosen):
    # Module scope groups the tests of a case, which share what is compiled for it.
    return pytest.mark.parametrize("case", list(chosen), ids=str, scope="module")


SUPPORTED = [case for case in CASES if objection(case) is None]
UNBIASED = [case for case in SUPPORTED if not case.estimator().biased]
BIASED = [case for case in SUPPORTED if case.estimator().biased]
targets = pytest.mark.parametrize("target", TARGETS)


@eqx.filter_jit
def _advance(estimator, target, q, state, keys):
    return jax.lax.scan(lambda s, k: (estimator.step(target, q, s, key=k)[1], None), state, keys)[0]


@eqx.filter_jit
def _replicate(estimator, baseline, target, q, state, keys):
    """Flattened gradients and ELBOs, and those of the baseline for the same keys."""

    def one(key):
        pair = [(estimator, state)] + [(baseline, baseline and baseline.init(target, q))]
        made = [part.step(target, q, s, key=key)[0] for part, s in pair if part is not None]
        return [flat(estimate.grad, estimate.elbo) for estimate in made]

    return jax.lax.map(one, keys, batch_size=500)


class Run(NamedTuple):
    """All that the tests of a case look at; `eager` is the last target's first replication, unjitted."""

    eager: np.ndarray
    samples: dict[str, np.ndarray]
    paired: dict[str, np.ndarray]
    traces: list[int]


def advanced(estimator, target, q, key):
    """The state after some steps; the first one where steps leave it alone, which tracing shows."""
    state = estimator.init(target, q)
    kept = []

    def probe(state):
        after = estimator.step(target, q, state, key=key)[1]
        kept.extend(a is b for a, b in zip(*map(jax.tree.leaves, (state, after)), strict=True))

    eqx.filter_eval_shape(probe, state)
    return state if all(kept) else _advance(estimator, target, q, state, jr.split(key, WARM_UP))


@functools.cache
def run(case):
    estimator, q = case.estimator(), case.q()
    baseline = case.baseline() if estimator.biased else None
    keys = jr.split(key_of(str(case)), REPLICATIONS)
    samples, paired, traces = {}, {}, []
    for name in TARGETS:
        target = target_2d(name)
        state = advanced(estimator, target, q, jr.fold_in(keys[0], 1))
        before = TRACES[0]
        ours, *plain = _replicate(estimator, baseline, target, q, state, keys)
        traces.append(TRACES[0] - before)
        samples[name] = np.asarray(ours)
        paired[name] = samples[name] - np.asarray(plain[0]) if plain else None
    estimate, _ = estimator.step(target, q, state, key=keys[0])
    return Run(np.asarray(flat(estimate.grad, estimate.elbo)), samples, paired, traces)


@functools.cache
def quadrature(kind, target):
    return by_quadrature(target_2d(target), family(kind, 2, small=True))


@functools.cache
def fixed_draws(kind, target):
    q = family(kind, 2, small=True)
    return by_fixed_draws(target_2d(target), q, draws=50_000, key=key_of(f"{kind}-{target}"))


@targets
@cases(UNBIASED)
def test_mean_matches_quadrature(case, target):
    truth = quadrature(case.family, target)
    assert_mean(run(case).samples[target], truth.value, slack=truth.error)


@targets
@cases(UNBIASED)
def test_mean_matches_autodiff_of_fixed_draws(case, target):
    truth = fixed_draws(case.family, target)
    assert_mean(run(case).samples[target], truth.value, error=truth.error)


@cases(BIASED)
def test_what_calls_itself_biased_is(case):
    """Against quadrature, or against the unbiased plain estimator on the same draws."""
    z = [0.0]
    for target in TARGETS:
        truth = quadrature(case.family, target)
        z.append(np.max(excess(run(case).samples[target], truth.value, slack=truth.error)))
        z.append(np.max(excess(run(case).paired[target], 0.0)))
    assert max(z) > 5


@cases(SUPPORTED)
def test_jit_and_vmap_change_nothing(case):
    last = list(TARGETS)[-1]
    # A step is a few hundred operations deep at most, solvers included.
    assert_same(run(case).samples[last][0], run(case).eager, operations=300)


@cases(SUPPORTED)
def test_compiles_once_for_all_targets_of_a_kind(case):
    first, *others = run(case).traces
    assert first > 0
    assert not any(others)


@cases(SUPPORTED)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_estimate_has_the_shape_and_precision_of_the_family(case, dtype):
    estimator, q = case.estimator(), cast(case.q(), dtype)
    target = target_2d("curved", dtype)
    state = estimator.init(target, q)
    estimate, after = eqx.filter_eval_shape(estimator.step, target, q, state, key=jr.key(0))
    wanted = jax.tree.map(lambda x: (x.shape, x.dtype), eqx.filter(q, eqx.is_inexact_array))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), estimate.grad) == wanted
    assert (estimate.elbo.shape, estimate.elbo.dtype) == ((), dtype)
    assert jax.tree.structure(after) == jax.tree.structure(state)


@cases(case for case in CASES if objection(case) is not None)
def test_unsupported_pairs_say_why(case):
    with pytest.raises(ValueError, match=r"\w") as caught:
        case.estimator().init(target_2d("curved"), case.q())
    assert str(caught.value) == objection(case)


@pytest.mark.parametrize("name", estimators.REGISTRY)
def test_every_estimator_runs_somewhere(name):
    assert any(case.name == name for case in SUPPORTED)
