"""What every registered estimator promises on every family: the gradient of the ELBO, or a stated bias.

The mean over `REPLICATIONS` estimates is compared with quadrature by a z-test, in every coordinate of
the gradient and for the ELBO. State is advanced for some steps first and then held fixed.
"""

import functools
import inspect
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, assert_same, by_fixed_draws, by_quadrature, excess, flat, standard_error
from subjects import ALIKE, EXACT, PROGRAMS, TARGETS, accepted, cast, family, key_of, target_2d

from quietgrad import estimators, families
from quietgrad.estimators import entropy

REPLICATIONS, BATCH = 2500, 250
WARM_UP = 10
DRAWS = 8
KEY, WARM_UP_KEY = key_of("estimators"), key_of("warm-up")


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

    def q(self):
        return family(self.family, 2, small=True)


def modes(make):
    return list(entropy.REGISTRY) if "entropy" in inspect.signature(make).parameters else [None]


def meets(number, kind):
    """Each case meets one family of a kind, in turn."""
    return ALIKE[kind].index(kind) == number % len(ALIKE[kind])


PAIRS = [(name, mode) for name, make in estimators.REGISTRY.items() for mode in modes(make)]
CASES = [
    Case(name, kind, mode)
    for number, (name, mode) in enumerate(PAIRS)
    for kind in EXACT
    if meets(number, kind)
]


@functools.cache
def objection(case):
    return case.estimator().refuses(target_2d("curved"), case.q())


def in_turn(case):
    """Modes take turns, from family to family and from estimator to estimator.

    The plain estimator, with which the others are compared, meets all.
    """
    if case.name == "nocv" or objection(case) is not None:
        return True
    alike = ALIKE[case.family]
    taken = [c for c in ACCEPTED if c.name == case.name and c.family in alike]
    turn = list(families.REGISTRY).index(alike[0]) + list(estimators.REGISTRY).index(case.name)
    return taken.index(case) == turn % len(taken)


def often(case):
    """Whether a case is for every run: each estimator meets its first family and every fifth kind.

    Its neighbours meet the kinds that it leaves out; the rest of the product is slow.
    """
    if case.name == "nocv" or objection(case) is not None or case == FIRST[case.name]:
        return True
    kinds = list(dict.fromkeys(ALIKE[c.family][0] for c in ACCEPTED if c.name == case.name))
    turn = kinds.index(ALIKE[case.family][0]) + list(estimators.REGISTRY).index(case.name)
    return in_turn(case) and turn % 5 == 1


def cases(chosen):
    # Module scope groups the tests of a case, which share what is compiled for it.
    marked = [c if often(c) else pytest.param(c, marks=pytest.mark.slow) for c in chosen]
    return pytest.mark.parametrize("case", marked, ids=str, scope="module")


ACCEPTED = [case for case in CASES if objection(case) is None]
FIRST = {case.name: case for case in reversed(ACCEPTED) if in_turn(case)}
UNBIASED = [case for case in ACCEPTED if not case.estimator().biased]
BIASED = [case for case in ACCEPTED if case.estimator().biased]
targets = pytest.mark.parametrize("target", TARGETS)


@eqx.filter_jit
def _steps(estimator, target, q, state, keys):
    """One step for each key: flattened gradients with their ELBOs, and the states after them."""

    def one(key):
        estimate, after = estimator.step(target, q, state, key=key)
        return flat(estimate.grad, estimate.elbo), after

    return jax.vmap(one)(keys)


class Run(NamedTuple):
    """Replications on each target, the state behind them, and how many programs were compiled."""

    samples: dict[str, np.ndarray]
    states: dict[str, Any]
    programs: list[int]


@functools.cache
def run(case):
    """Every case sees the same keys, and so the same draws wherever it draws alike."""
    estimator, q = case.estimator(), case.q()
    keys = jr.split(KEY, (REPLICATIONS // BATCH, BATCH))
    samples, states, programs = {}, {}, []
    for name in TARGETS:
        target = target_2d(name)
        state = estimator.init(target, q)
        before = PROGRAMS[0]
        for warm_up in jr.split(WARM_UP_KEY, (WARM_UP, BATCH)) if jax.tree.leaves(state) else ():
            _, after = _steps(estimator, target, q, state, warm_up)
            state = jax.tree.map(lambda x: x[0], after)
        samples[name] = np.concatenate([_steps(estimator, target, q, state, batch)[0] for batch in keys])
        states[name] = state
        programs.append(PROGRAMS[0] - before)
    return Run(samples, states, programs)


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


def gap_to_plain(case, target):
    """Differences from the plain estimator on the same draws, where bias has the least noise to hide in.

    Also the rounding of what is subtracted, which the differences themselves do not show.
    """
    plain = run(Case("nocv", case.family, case.mode or "sampled")).samples[target]
    rounding = 100 * np.finfo(float).eps * np.max(np.abs(plain), axis=0)
    return run(case).samples[target] - plain, rounding


@targets
@cases(UNBIASED)
def test_mean_matches_the_plain_estimator_on_the_same_draws(case, target):
    gap, rounding = gap_to_plain(case, target)
    assert_mean(gap, 0.0, slack=rounding)


@cases(BIASED)
def test_what_calls_itself_biased_is(case):
    """It fails one of the tests above on some target."""
    z = [0.0]
    for target in TARGETS:
        truth, (gap, rounding) = quadrature(case.family, target), gap_to_plain(case, target)
        z.append(np.max(excess(run(case).samples[target], truth.value, slack=truth.error)))
        z.append(np.max(excess(gap, 0.0, slack=rounding)))
    assert max(z) > 5


def plain_form(case):
    """The plain estimator with the entropy mode of the case, as a case of its own.

    What chooses its mode as it runs is compared with the plain estimator as it is.
    """
    used = type(getattr(case.estimator(), "entropy", None))
    mode = next((name for name, cls in entropy.REGISTRY.items() if used is cls), "sampled")
    return Case("nocv", case.family, mode)


BOUNDED = [case for case in ACCEPTED if math.isfinite(case.estimator().variance_bound(case.q()))]


@targets
@cases(BOUNDED)
def test_variance_stays_within_what_is_promised(case, target):
    """Squared distances from the mean, summed over the coordinates and compared draw by draw."""
    bound = case.estimator().variance_bound(case.q())
    own, plain = (run(each).samples[target][:, :-1] for each in (case, plain_form(case)))
    own, plain = (np.sum((grad - np.mean(grad, axis=0)) ** 2, axis=1) for grad in (own, plain))
    above = own - bound * plain
    # Where both are the same, rounding of some tens of operations is all that is left.
    rounding = 100 * np.finfo(float).eps * np.mean(plain)
    assert np.mean(above) <= 5 * standard_error(above) + rounding


def test_promises_about_the_variance_are_made():
    """By what quiets the draws and by what learns, not only by the plain estimator."""
    bounds = {case.name: case.estimator().variance_bound(case.q()) for case in BOUNDED}
    assert len(bounds) > 3
    assert len(set(bounds.values())) > 1


@cases(ACCEPTED)
def test_compiles_once_for_all_targets_of_a_kind(case):
    """And so not at all after the first; a preset that equals an earlier one does not even then."""
    _, *later = run(case).programs
    assert not any(later)


# The first family and mode that an estimator runs with stand for all: Python's part in a step is the
# estimator's.
@pytest.mark.turns(3)
@cases(FIRST.values())
def test_jit_and_vmap_change_nothing(case):
    *_, (target, samples) = run(case).samples.items()
    key = jr.split(KEY, (REPLICATIONS // BATCH, BATCH))[0, 0]
    estimate, _ = case.estimator().step(target_2d(target), case.q(), run(case).states[target], key=key)
    # A step is a few hundred operations deep at most, solvers included.
    assert_same(samples[0], flat(estimate.grad, estimate.elbo), operations=300)


@cases(ACCEPTED)
def test_estimate_has_the_shape_and_precision_of_the_family(case):
    estimator, q = case.estimator(), cast(case.q(), jnp.float32)
    target = target_2d("curved", jnp.float32)
    state = estimator.init(target, q)
    estimate, after = eqx.filter_eval_shape(estimator.step, target, q, state, key=jr.key(0))
    wanted = jax.tree.map(lambda x: (x.shape, x.dtype), eqx.filter(q, eqx.is_inexact_array))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), estimate.grad) == wanted
    assert (estimate.elbo.shape, estimate.elbo.dtype) == ((), jnp.float32)
    assert jax.tree.structure(after) == jax.tree.structure(state)


@cases(case for case in CASES if objection(case) is not None)
def test_refused_pairs_say_why(case):
    with pytest.raises(ValueError, match=r"\w") as caught:
        case.estimator().init(target_2d("curved"), case.q())
    assert str(caught.value) == objection(case)


@pytest.mark.parametrize("name", estimators.REGISTRY)
def test_every_estimator_runs_somewhere(name):
    estimated = [kind for kind in families.REGISTRY if kind not in EXACT]
    cases = [*ACCEPTED, *(Case(name, kind, None) for kind in estimated)]
    assert any(case.name == name and objection(case) is None for case in cases)
