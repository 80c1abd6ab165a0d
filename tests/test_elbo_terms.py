"""The evaluator: pairs that cancel, bad draws that are counted, and the spread of single draws."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import (
    LEAST_PAIRS,
    PAIRS,
    WORK,
    ElboEvaluator,
    affordable_pairs,
    paired_difference,
)

SEED = jnp.asarray([1, 2], jnp.uint32)
Q = qg.MeanField(jnp.asarray([1.5, -2.0]), jnp.asarray([0.1, -0.3]))


ON_DEVICE = {"host_numbers": 0}


def judge(fn, pairs=PAIRS, **options):
    return ElboEvaluator(qg.Target.from_logdensity(fn, dim=2), pairs=pairs, seed=SEED, **options)


def test_pairs_cancel_whatever_is_odd():
    """The mean of the points is the location, and a slope leaves no trace in the ELBO."""
    flat, sloped = (judge(lambda z, a=a: a * jnp.sum(z)).terms(Q) for a in (0.0, 3.0))
    np.testing.assert_allclose(flat.mean, Q.loc, rtol=1e-12)
    moved = 3.0 * float(jnp.sum(Q.loc))
    # Rounding of sums of numbers of the size of the slope's share.
    np.testing.assert_allclose(sloped.values - flat.values, moved, rtol=1e-12)


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_what_is_not_finite_is_counted_draw_by_draw(bad, where):
    """Half of the draws are on the bad side of the mean: one of each pair, so no term is finite."""
    options = ON_DEVICE if where == "device" else {}
    terms = judge(lambda z: jnp.where(z[0] > 1.5, bad, 0.0), pairs=2 * PAIRS, **options).terms(Q)
    assert terms.bad == 2 * PAIRS
    assert not np.any(np.isfinite(terms.values))
    assert np.isnan(terms.error)


@pytest.mark.parametrize("where", ["host", "device", "pair by pair"])
def test_every_pair_has_draws_of_its_own_and_more_pairs_go_on_from_fewer(where):
    """A block of draws that came again would halve the stated error of nothing."""
    options = {"host": {}, "device": ON_DEVICE, "pair by pair": {**ON_DEVICE, "held": 0}}[where]
    many, few = judge(curved, pairs=3 * PAIRS, **options).terms(Q), judge(curved, **options)
    assert np.unique(many.values).size == 3 * PAIRS
    np.testing.assert_array_equal(few.terms(Q).values, many.values[:PAIRS])
    np.testing.assert_array_equal(few.terms(Q, times=3).values, many.values)


def test_as_many_pairs_judge_as_were_asked_for():
    """By blocks of equal size where they are many."""
    for pairs in (2, PAIRS - 1, PAIRS, 3 * PAIRS):
        assert judge(curved, pairs=pairs).pairs == pairs
    assert judge(curved, pairs=2 * PAIRS + 1).pairs == 3 * PAIRS
    assert judge(curved, pairs=5).terms(Q).values.size == 5


def test_spreads_are_those_of_the_points():
    """Twice as wide a q has points twice as far from its mean, in blocks too."""
    wide = qg.MeanField(Q.loc, Q.log_std + jnp.log(2.0))
    for pairs in (PAIRS, 3 * PAIRS):
        one, two = (judge(curved, pairs=pairs).terms(q).std for q in (Q, wide))
        np.testing.assert_allclose(two, 2 * one, rtol=1e-12)
        # The standard error of a root mean square of normal draws.
        assert np.all(np.abs(one / np.exp(Q.log_std) - 1) < 5 / np.sqrt(2 * pairs))


def test_the_error_is_the_standard_error_of_the_mean():
    terms = judge(curved, pairs=2 * PAIRS).terms(Q)
    np.testing.assert_allclose(terms.error, scipy.stats.sem(terms.values), rtol=1e-12)


def test_pairs_are_as_many_as_are_affordable():
    assert [affordable_pairs(rows, 2, 64) for rows in (0, 100)] == [64, 64]
    assert [affordable_pairs(*size, 64) for size in ((2**30, 2), (2, 2**30))] == [LEAST_PAIRS] * 2
    assert affordable_pairs(WORK // 40, 2, 64) == 20


def test_the_variance_is_that_of_all_single_draws():
    """Both draws of a pair have the same value where all is even, so pairs show single draws."""
    terms = judge(lambda z: -2.0 * jnp.sum((z - Q.loc) ** 2), pairs=3 * PAIRS).terms(Q)
    assert terms.values.size == 3 * PAIRS
    np.testing.assert_allclose(terms.variance, np.var(terms.values), rtol=1e-12)
    assert terms.gap == terms.variance / 2


def curved(z):
    return -jnp.sum(jnp.exp(0.3 * z)) - jnp.sum(z**2)


@pytest.mark.parametrize("name", ["mean-field", "low-rank", "full-rank"])
def test_gaussians_meet_the_same_draws_on_the_host_as_others_on_the_device(name, key):
    """A flow is judged on the device, so a ladder of families compares answers of both."""
    q = qg.families.REGISTRY[name].init(2, key=key)
    host = judge(curved, pairs=2 * PAIRS).terms(q)
    device = judge(curved, pairs=2 * PAIRS, **ON_DEVICE).terms(q)
    # Some dozen operations on numbers of size ten.
    for ours, theirs in zip(host, device, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_families_share_the_draws_of_their_coordinates():
    """Factors that are all but zero: the low-rank member is the mean-field one, draw by draw."""
    same = qg.LowRank(Q.loc, Q.log_std, jnp.full((1, 2), 1e-9))
    gain, error = paired_difference(judge(curved).terms(same), judge(curved).terms(Q))
    assert abs(gain) + error < 1e-6


def test_a_target_that_cannot_be_differentiated_is_judged_by_its_values():
    def opaque(z):
        shape = jax.ShapeDtypeStruct((), z.dtype)
        return jax.pure_callback(lambda z: -np.sum(z**2, axis=-1), shape, z, vmap_method="expand_dims")

    np.testing.assert_allclose(
        judge(opaque).terms(Q).elbo, judge(lambda z: -jnp.sum(z**2)).terms(Q).elbo, rtol=1e-12
    )


def normal_means(rows, key):
    """Unit normal data with an unknown mean, and a flat prior: the posterior is N(mean, 1 / rows)."""
    x = np.asarray(jr.normal(key, (rows,)))
    return x, qg.Target(lambda z: 0.0 * z[0], lambda z, x: -0.5 * (x - z[0]) ** 2, x, dim=1)


def test_shares_of_the_rows_add_up_to_all_of_them(key):
    """For a q without any width every pair sees the same point, so that only rows differ."""
    x, target = normal_means(PAIRS * 10, key)
    q = qg.MeanField(jnp.array([0.3]), jnp.array([-40.0]))
    rows = np.random.default_rng(0).permutation(x.size).reshape(PAIRS, -1)
    shared, whole = (
        ElboEvaluator(target, pairs=PAIRS, seed=SEED, rows=r).terms(q) for r in (rows, None)
    )
    # Sums of some hundred numbers, in another order.
    np.testing.assert_allclose(shared.elbo, whole.elbo, rtol=1e-12)


def test_an_answer_that_suits_some_rows_only_is_not_better_beyond_doubt(key):
    """Judged on a hundredth of the rows, the mean of these would seem to gain tens of nats for sure."""
    x, target = normal_means(PAIRS * 1000, key)
    rng = np.random.default_rng(0)
    some = rng.permutation(x.size)[: PAIRS * 10]
    log_std = jnp.array([-0.5 * np.log(x.size)])
    right, misled = (qg.MeanField(jnp.array([y.mean()]), log_std) for y in (x, x[some]))
    few = ElboEvaluator(target.on_rows(some), pairs=PAIRS, seed=SEED)
    gain, error = paired_difference(few.terms(misled), few.terms(right))
    assert gain > 5 * error
    shares = ElboEvaluator(target, pairs=PAIRS, seed=SEED, rows=some.reshape(PAIRS, -1))
    gain, error = paired_difference(shares.terms(misled), shares.terms(right))
    assert gain < 3 * error
    every = ElboEvaluator(
        target, pairs=PAIRS, seed=SEED, rows=rng.permutation(x.size).reshape(PAIRS, -1)
    )
    assert paired_difference(every.terms(misled), every.terms(right))[0] < 0


def test_every_pair_needs_rows(key):
    _, target = normal_means(10, key)
    with pytest.raises(ValueError, match="each of at most 64 pairs"):
        ElboEvaluator(target, pairs=4, seed=SEED, rows=np.zeros((3, 2), int))
