"""quiet is not noisier than the plain estimator, wherever on its way a fit is, for every family."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from oracles import assert_same
from subjects import ALIKE, EXACT, cast, family, in_turn, target_2d

import quietgrad as qg
from quietgrad import families
from quietgrad.estimators import Pathwise, entropy, samplers
from quietgrad.estimators.quiet import MOST, PAIRS, QuietState, relative_variances
from quietgrad.families import HasMoments
from quietgrad.families.bases import Normal
from quietgrad.targets import LogisticRegression

# The places on the way at which variances are compared, in steps of Adam at 0.05 from the start.
STEPS, RATE = (0, 30, 300), 0.05
# Steps at one q in which the looks are averaged: one at each power of two.
SETTLE = 40


@functools.cache
def logistic(columns):
    """Correlated columns of 200 rows, in single precision, as users have it."""
    rng = np.random.default_rng(0)
    order = np.arange(columns)
    x = rng.multivariate_normal(np.zeros(columns), 0.9 ** np.abs(order[:, None] - order), size=200)
    y = rng.random(200) < 1 / (1 + np.exp(-x @ rng.normal(scale=0.5, size=columns)))
    return LogisticRegression().target(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))


TARGETS = {
    "logistic": (lambda: logistic(60), jnp.float32),
    "counts": (lambda: qg.tasks.load("counts").train, jnp.float64),
}


def standard(kind, dim, dtype):
    """Mean zero and identity scale, with small parameters where those would be a stationary point."""
    q = families.REGISTRY[kind].init(dim, key=jr.key(0))
    named = {"loc", "log_std", "packed"} if hasattr(q, "loc") else set()
    for name in named & {field for field in vars(q)}:
        q = eqx.tree_at(lambda q: getattr(q, name), q, replace_fn=jnp.zeros_like)  # noqa: B023
    return cast(q, dtype)


@eqx.filter_jit
def trained(target, q, estimator, keys, rate=RATE):
    """q after a step of Adam for each key, starting from the estimator's first state."""
    rule = optax.adam(rate)
    params, static = eqx.partition(q, eqx.is_inexact_array)

    def step(carry, key):
        params, state, memory = carry
        estimate, state = estimator.step(target, eqx.combine(params, static), state, key=key)
        down = jax.tree.map(jnp.negative, estimate.grad)
        change, memory = rule.update(down, memory)
        return (optax.apply_updates(params, change), state, memory), None

    start = params, estimator.init(target, q), rule.init(params)
    return eqx.combine(jax.lax.scan(step, start, keys)[0][0], static)


def often(kind, name):
    """Whether a pair is for every run: full rank, where it was wrong, meets both targets, others one."""
    if kind != ALIKE[kind][0]:
        return False
    return kind == "full-rank" or EXACT.index(kind) % len(TARGETS) == list(TARGETS).index(name)


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=() if often(kind, name) else pytest.mark.slow)
        for kind in EXACT
        for name in TARGETS
    ],
)
def test_variance_is_at_most_the_plain_one_all_the_way(kind, name, key):
    load, dtype = TARGETS[name]
    target = load()
    q = standard(kind, target.dim, dtype)
    made = qg.estimator("quiet", draws=2)
    settle = eqx.filter_jit(
        lambda q, keys: jax.lax.scan(
            lambda state, k: (made.step(target, q, state, key=k)[1], None), made.init(target, q), keys
        )[0]
    )
    for before, steps in zip((0, *STEPS), STEPS, strict=False):
        way, looks, measure = jr.split(jr.fold_in(key, steps), 3)
        # At the rate of Gaussians, plain steps throw an autoregressive layer out.
        rate = RATE if isinstance(q, HasMoments) else min(RATE, q.advice.near_rate)
        q = trained(target, q, Pathwise(draws=10), jr.split(way, steps - before), rate)
        state = settle(q, jr.split(looks, SETTLE))
        found = qg.variance_ratio(target, q, made, state=state, repeats=300, key=measure)
        assert found.ratio <= 1 + 5 * found.error, (steps, state.ratios)


@eqx.filter_jit
def elbos(target, q, estimator, keys):
    """The ELBO where each key's run of 600 steps ends, judged by the same 200 draws."""
    e = jr.normal(jr.key(1), (200, q.base_dim), q.dtype)

    def of_run(key):
        end = trained(target, q, estimator, jr.split(key, 600))
        z, log_q = jax.vmap(end.transport_and_log_prob)(e)
        return jnp.mean(jax.vmap(target.log_density)(z) - log_q)

    return jax.lax.map(of_run, keys)


@functools.cache
def plain_ends():
    return ends("nocv")


def ends(name):
    """Of eight runs with two draws a step: little enough to diverge where noise is doubled."""
    target = logistic(60)
    q = standard("full-rank", target.dim, jnp.float32)
    return np.asarray(elbos(target, q, qg.estimator(name, draws=2), jr.split(jr.key(7), 8)), float)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", ["quiet", "quadcv", "quadcv-fast"])
def test_bold_steps_of_a_full_rank_family_end_no_lower_than_plain_ones(name):
    ours, plain = ends(name), plain_ends()
    assert np.all(np.isfinite(ours))
    # Five errors of the difference, if ours scatter as the plain ones: their own spread would also grow
    # where some of them diverge.
    error = np.sqrt(2 / len(ours)) * np.std(plain, ddof=1)
    assert np.mean(ours) >= np.mean(plain) - 5 * error, (ours, plain)


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", in_turn())
@pytest.mark.parametrize("stick", [False, True])
def test_a_chosen_entropy_is_one_of_the_others(kind, stick, key):
    target, q = target_2d("curved"), family(kind, 2, small=True)
    known = "closed" if entropy.REGISTRY["closed"]().refuses(q) is None else "sampled"
    made = Pathwise(entropy=entropy.Chosen(jnp.asarray(stick)), draws=4)
    other = Pathwise(entropy="stl" if stick else known, draws=4)
    ours, theirs = (
        ravel_pytree(eqx.filter_jit(each.step)(target, q, each.init(target, q), key=key)[0].grad)[0]
        for each in (made, other)
    )
    assert_same(ours, theirs, operations=300)


@pytest.mark.parametrize(("paired", "name"), [(True, "antithetic"), (False, "iid")])
def test_a_chosen_sampler_is_one_of_the_others(paired, name, key):
    made, other = samplers.Chosen(jnp.asarray(paired)), samplers.REGISTRY[name]()
    given = Normal(), (6, 3), jnp.float32
    np.testing.assert_array_equal(made.draw(None, *given, key=key), other.draw(None, *given, key=key))
    alone = made.draw(None, Normal(), (3, 2), jnp.float32, key=key)
    np.testing.assert_array_equal(
        alone, samplers.Iid().draw(None, Normal(), (3, 2), jnp.float32, key=key)
    )


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", ["mean-field", "full-rank", "low-rank"])
def test_looks_see_the_variances_that_are_there(kind, key):
    """Averaged looks beside the ratios of the four estimators, within both errors."""
    target, q = target_2d("curved"), family(kind, 2, small=True)
    key_looks, key_measure = jr.split(key)
    look = eqx.filter_jit(lambda k: relative_variances(target, q, key=k))
    looks = np.asarray(jax.lax.map(look, jr.split(key_looks, 500)))
    # Ratios of few pairs are biased by their denominators; the order of their means is not.
    order = np.argsort(np.mean(looks, axis=0))
    forms = [(sampler, mode) for sampler in ("iid", "antithetic") for mode in ("closed", "stl")]
    measured = [
        qg.variance_ratio(
            target,
            q,
            Pathwise(sampler=sampler, entropy=mode, draws=2),
            baseline=Pathwise(entropy="closed", draws=2),
            repeats=4000,
            key=key_measure,
        )
        for sampler, mode in forms
    ]
    best, least = measured[order[0]], min(measured, key=lambda found: found.ratio)
    assert best.ratio <= least.ratio + 5 * np.hypot(best.error, least.error)


def test_a_look_that_is_not_finite_changes_nothing(key):
    target = qg.Target.from_logdensity(lambda z: jnp.sum(jnp.sqrt(z)), dim=2)
    q, made = family("mean-field", 2), qg.estimator("quiet")
    start = made.init(target, q)
    after = eqx.filter_jit(made.step)(target, q, start, key=key)[1]
    np.testing.assert_array_equal(after.ratios, start.ratios)
    assert not after.paired
    assert not after.stick


def test_looks_are_dense_at_first_and_never_end(key):
    """At the powers of two, and at every 64th step."""
    target, q, made = target_2d("gaussian"), family("mean-field", 2), qg.estimator("quiet")

    def step(state, key):
        after = made.step(target, q, state, key=key)[1]
        return after, after.probes - state.probes

    run = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))
    last, looks = run(made.init(target, q), jr.split(key, 200))
    assert np.flatnonzero(looks).tolist() == [0, 1, 2, 4, 8, 16, 32, 64, 128, 192]
    assert (int(last.steps), int(last.probes)) == (200, 10)


@pytest.mark.parametrize(
    ("best", "paired", "stick"), [(0, False, False), (1, False, True), (2, True, False), (3, True, True)]
)
def test_the_least_noisy_of_four_is_chosen(best, paired, stick):
    """Independent draws without and with sticking, then pairs without and with it."""
    zero = jnp.zeros((), jnp.int32)
    state = QuietState(zero, zero, jnp.ones(4).at[best].set(0.5))
    assert bool(state.paired) is paired
    assert bool(state.stick) is stick


@pytest.mark.parametrize(("draws", "paired"), [(3, False), (4, True)])
def test_an_odd_number_of_draws_is_never_paired(draws, paired, key):
    """Pairs then count as noisy as anything can; where the target is odd in the draws they are best."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - 3.0) ** 2), dim=2)
    q, made = family("mean-field", 2, small=True), qg.estimator("quiet", draws=draws)
    state = eqx.filter_jit(made.step)(target, q, made.init(target, q), key=key)[1]
    assert bool(state.paired) is paired
    assert bool(jnp.all(state.ratios[2:] == MOST)) is not paired
    assert bool(jnp.all(state.ratios[:2] < MOST))


def test_pairs_of_even_gradients_are_twice_as_noisy(key):
    """f = z^3 / 3 at zero: the gradient of the mean is z^2, even in the draw; that of the log scale is a
    thousand times smaller."""
    target = qg.Target.from_logdensity(lambda z: jnp.sum(z**3) / 3, dim=1)
    q = qg.MeanField(jnp.zeros(1), jnp.full(1, jnp.log(1e-3)))
    ratios = eqx.filter_jit(relative_variances)(target, q, key=key)
    # Squares of that thousandth, times moments of the draws below a hundred.
    np.testing.assert_allclose(ratios[jnp.array([0, 2])], [1.0, 2.0], rtol=1e-4)


def test_a_look_is_made_of_unbiased_variances(key):
    """Literally: from the gradients at each pair, their half sums have an unknown mean and their half
    differences the mean zero."""
    target, q = target_2d("curved"), qg.MeanField(jnp.array([0.3, -0.2]), jnp.array([-0.4, 0.1]))
    e = q.base.sample((PAIRS, 2), q.dtype, key=key)

    def gradient(e, stick):
        def value(loc, log_std):
            z = loc + jnp.exp(log_std) * e
            still = jax.lax.stop_gradient((loc, log_std))
            log_q = -0.5 * jnp.sum(((z - still[0]) / jnp.exp(still[1])) ** 2)
            return target.log_density(z) - (log_q if stick else -jnp.sum(log_std))

        return jnp.concatenate(jax.grad(value, (0, 1))(q.loc, q.log_std))

    gradients = jax.jit(jax.vmap(gradient, (0, None)), static_argnums=1)
    independent, paired = [], []
    for stick in (False, True):
        plus, minus = (np.asarray(gradients(s * e, stick)) for s in (1, -1))
        even = np.sum(np.var((plus + minus) / 2, axis=0, ddof=1))
        odd = np.sum(np.mean(((plus - minus) / 2) ** 2, axis=0))
        independent.append(even + odd)
        paired.append(2 * even)
    expected = np.array(independent + paired) / independent[0]
    ratios = eqx.filter_jit(relative_variances)(target, q, key=key)
    np.testing.assert_allclose(ratios, expected, rtol=1e-9)
