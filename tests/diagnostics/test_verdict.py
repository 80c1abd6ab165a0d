"""The verdict on posteriors whose best Gaussian is known, and on right fits with a fault put in."""

import functools
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import posteriors
import pytest
from posteriors import full_rank, mean_field, newton

from quietgrad import MeanField, RealNVP, Status, Target, fit
from quietgrad.diagnostics.advice import advise
from quietgrad.diagnostics.comparison import Comparison
from quietgrad.diagnostics.diagnosis import Ending
from quietgrad.diagnostics.evidence import gather
from quietgrad.diagnostics.verdict import judge
from quietgrad.evaluation.elbo_terms import Difference

TRUST, CORRECTED, DO_NOT = "trust", "use the corrected draws", "do not trust"
MEAN, COVARIANCE = np.asarray(posteriors.MEAN), posteriors.COVARIANCE


def right_gaussian(status=Status.CONVERGED):
    return full_rank(posteriors.gaussian(), MEAN, COVARIANCE, status)


def mean_field_gaussian():
    """The variances of each coordinate given the others, which are too small."""
    std = np.diagonal(np.linalg.inv(COVARIANCE)) ** -0.5
    return mean_field(posteriors.gaussian(), MEAN, std)


def right_log_gamma():
    """E z + var / 2 = log(shape), var = 1 / shape."""
    return mean_field(posteriors.log_gamma(), np.full(4, math.log(4) - 1 / 8), np.full(4, 0.5))


def best_funnel():
    """v ~ N(0, s^2) with 1/s^2 = 1/9 + 9/2; the other variances are 1 / E exp(-v)."""
    variance = 1 / (1 / 9 + 9 / 2)
    std = [math.sqrt(variance), *[math.exp(-variance / 4)] * 9]
    return mean_field(posteriors.funnel(), np.zeros(10), std)


def best_banana():
    """1/s^2 = 1/4 + 8 s^2 / 0.18 for the first coordinate; the second has mean -s^2 and its own sd."""
    variance = (-0.25 + math.sqrt(0.0625 + 4 * 8 / 0.18)) / (16 / 0.18)
    return mean_field(posteriors.banana(), [0.0, -variance], [math.sqrt(variance), 0.3])


@pytest.mark.parametrize(
    "make",
    [
        right_gaussian,
        right_log_gamma,
        lambda: newton(posteriors.logistic()),
        lambda: newton(posteriors.poisson()),
    ],
    ids=["gaussian", "log-gamma", "logistic", "poisson"],
)
def test_right_fits_are_trusted(make):
    found = make().diagnose()
    assert found.verdict == TRUST, str(found)
    assert found.advice == ()


@pytest.mark.parametrize(
    ("make", "reason", "advice"),
    [
        (best_funnel, "sds; q's sd is", "depends on coordinate 0; write them non-centred"),
        (best_banana, "sds; q's sd is", "banana: coordinate 1 follows the square of coordinate 0"),
        (lambda: mean_field(posteriors.bimodal(), [4] * 3, [1] * 3), "never looks", "several modes"),
        (lambda: mean_field(posteriors.cauchy(), [0] * 2, [1.5] * 2), "do not exist", "quantiles"),
        (lambda: mean_field(posteriors.improper(), [0] * 3, [1] * 3), "is improper", "proper prior"),
        (mean_field_gaussian, "sds; q's sd is 0.5", "'full-rank'"),
    ],
    ids=["funnel", "banana", "bimodal", "cauchy", "improper", "correlated"],
)
def test_wrong_fits_are_not_trusted_and_the_advice_fits(make, reason, advice):
    found = make().diagnose()
    # Chains may have gone on to where q should be; q itself is wrong all the same.
    assert found.verdict == (CORRECTED if found.by_chains else DO_NOT), str(found)
    assert any(reason in line for line in found.reasons), str(found)
    assert any(advice in line for line in found.advice), str(found)


@pytest.mark.parametrize(("khat", "verdict"), [(0.3, TRUST), (0.6, DO_NOT)])
def test_a_flow_that_is_narrow_under_weights_without_a_variance_is_not_trusted(khat, verdict):
    """As flows are on centred hierarchies: within the tolerance by what chains see, and far off."""
    fitted = right_log_gamma()
    evidence = gather(fitted.target, fitted.q, np.random.default_rng(0), 2000)
    narrow = np.array([0.0, math.log(0.85), 0.0, 0.0])
    seen = evidence.moved._replace(log_ratio=narrow, log_ratio_error=np.full(4, 0.02))
    weights = evidence.weights._replace(khat=khat)
    evidence = evidence._replace(flow=True, weights=weights, moved=seen, weighted=seen)
    ending = Ending(Status.CONVERGED, "")
    found, _ = judge(evidence, ending)
    assert found == verdict
    asked = advise(found, evidence, ending, fitted.q)
    assert (verdict == TRUST) == (asked == [])
    assert verdict == TRUST or "if coordinate 1 is the scale of other coordinates" in asked[0]
    assert judge(evidence._replace(flow=False), ending)[0] == TRUST


@functools.cache
def gathered():
    fitted = right_log_gamma()
    return gather(fitted.target, fitted.q, np.random.default_rng(0), 2000)


def uneven(evidence):
    """Weights that can be relied on, of which some are several times the average."""
    w = np.exp(0.7 * np.random.default_rng(1).standard_normal(evidence.weights.w.size))
    return evidence.weights._replace(w=w / np.sum(w), khat=0.3)


def seen(*, shift=0.0, log_ratio=0.0, error=0.02):
    """Of four coordinates the second is off by so much, and all is known to this error."""
    one = np.array([0.0, 1.0, 0.0, 0.0])
    errors = np.full(4, error)
    return Comparison(shift * one, errors, log_ratio * one, errors)


def judged(moved, weighted):
    evidence = gathered()
    evidence = evidence._replace(weights=uneven(evidence), moved=moved, weighted=weighted)
    return judge(evidence, Ending(Status.CONVERGED, ""))


@pytest.mark.parametrize("error", [0.02, 0.5])
def test_sharp_chains_come_before_weights_that_are_not_equal(error):
    """Although those state smaller errors, as weights of a q that is too narrow do."""
    moved, weighted = seen(shift=0.5, log_ratio=-0.4, error=error), seen(error=0.01)
    evidence = gathered()._replace(moved=moved, weighted=weighted)
    best = evidence._replace(weights=uneven(evidence)).best
    expected = moved if error < evidence.settings.sharp_mean else weighted
    for found, known in zip(best, expected, strict=True):
        np.testing.assert_array_equal(found, known)


@pytest.mark.parametrize("apart", [0.0, 1.3])
@pytest.mark.parametrize("what", ["shift", "log_ratio"])
def test_weights_that_differ_from_chains_by_more_than_the_tolerance_correct_nothing(what, apart):
    """Chains say that a mean, or an sd, is off by 1.5 times the tolerance."""
    settings = gathered().settings
    tolerance = settings.mean if what == "shift" else settings.narrow
    moved = seen(**{what: 1.5 * tolerance})
    verdict, found = judged(moved, seen(**{what: (1.5 - apart) * tolerance}))
    assert found.wrong
    assert verdict == (DO_NOT if apart else CORRECTED)
    assert any("do not confirm each other" in line for line in found.wrong) == bool(apart)


@pytest.mark.parametrize(("times", "heavy"), [(1.05, False), (0.95, True)])
def test_a_q_so_narrow_that_weights_must_be_heavy_is_not_corrected_by_them(times, heavy):
    """Whatever k-hat says: a Gaussian with r of the posterior's sd has weights of k = 1 - r^2."""
    narrow = times * math.sqrt(1 - gathered().weights.limit)
    same = seen(log_ratio=math.log(narrow))
    verdict, found = judged(same, same)
    assert verdict == (DO_NOT if heavy else CORRECTED)
    assert any("narrowest sd" in line for line in found.fine) == heavy


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Difference(0.01, 0.02), "fine"),
        (Difference(9.0, 1.0), "wrong"),
        (Difference(46630.0, 54522.0), ""),
        (Difference(math.inf, 0.0), ""),
    ],
)
def test_a_newton_step_is_named_only_where_draws_tell_what_it_gains(gain, said):
    fitted = right_gaussian()
    evidence = gather(fitted.target, fitted.q, np.random.default_rng(0), 500)._replace(gain=gain)
    _, found = judge(evidence, Ending(Status.CONVERGED, ""))
    for name in ("fatal", "wrong", "fine"):
        assert any("Newton" in line for line in getattr(found, name)) == (name == said)


def test_draws_beyond_what_numbers_hold_count_as_draws_without_a_density():
    """As single precision has them of a flow that was led astray: the verdict is a sentence."""
    target = Target.from_logdensity(lambda z: -3 * jnp.sum(jnp.log1p(jnp.abs(z))), 3)
    q = MeanField(jnp.zeros(3, jnp.float32), jnp.asarray([0.0, 87.5, 0.0], jnp.float32))
    with np.errstate(all="ignore"):
        evidence = gather(target, q, np.random.default_rng(0), 500)
    assert 0 < evidence.draws.bad_share < 1
    assert np.all(np.isfinite(evidence.draws.z))
    verdict, found = judge(evidence, Ending(Status.CONVERGED, ""))
    assert verdict == DO_NOT
    assert any("not finite at" in line for line in (*found.fatal, *found.wrong))


def test_predictors_that_are_nearly_the_same_are_named():
    found = newton(posteriors.logistic(similar=0.97), MeanField).diagnose()
    assert found.verdict != TRUST
    assert any("0 and coordinate 1 are correlated at -0.99" in a for a in found.advice), str(found)


def test_two_modes_under_one_q_are_told_and_mended():
    """A q with the right mean and sd does not show that there are two bumps."""
    target = Target.from_logdensity(
        lambda z: jnp.logaddexp(-2 * (z[0] - 1) ** 2, -2 * (z[0] + 1) ** 2), dim=1
    )
    found = mean_field(target, [0.0], [math.sqrt(1.25)]).diagnose()
    assert found.verdict == CORRECTED, str(found)
    assert any("has several modes" in line for line in found.reasons)
    assert any("several modes" in line for line in found.advice)


def test_a_mean_moved_by_half_an_sd_is_found_and_weights_mend_it():
    # All marginal sds are one.
    found = full_rank(posteriors.gaussian(), MEAN + [0, 0, 0.5], COVARIANCE).diagnose()
    assert found.verdict == CORRECTED, str(found)
    truth = np.array([0, 0, -0.5])
    assert np.all(np.abs(found.shift - truth) < 5 * found.shift_error)
    assert found.advice[0].startswith("result.posterior(key)")


def test_halved_scales_are_found():
    found = full_rank(posteriors.gaussian(), MEAN, COVARIANCE / 4).diagnose()
    assert found.verdict != TRUST
    assert np.all(np.abs(found.std_ratio - 0.5) < 5 * found.std_ratio_error)


@pytest.mark.parametrize("status", Status)
def test_only_a_converged_fit_can_be_trusted(status):
    wanted = TRUST if status is Status.CONVERGED else DO_NOT if status.failed else CORRECTED
    found = right_gaussian(status).diagnose()
    assert found.verdict == wanted, str(found)
    assert status is Status.CONVERGED or any(status in line for line in found.reasons)


def test_restarts_that_disagree_are_not_trusted():
    fitted = right_gaussian()
    # The log of the normaliser is the ELBO of a q that is right.
    height = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    other = full_rank(posteriors.gaussian(), MEAN + 3, COVARIANCE)
    for restart, elbo, error, verdict, reason in (
        (fitted, height, 0.0, TRUST, "1 restarts agree"),
        (other, height, 0.0, DO_NOT, "a restart that is as good ends 3.0 sds away"),
        (other, height - 10, 0.0, TRUST, "or ended lower"),
        (fitted, height + 10, 0.0, DO_NOT, "a restart found a better answer, by 10"),
        # Better by less than two errors, beyond the nat that does not matter.
        (fitted, height + 2.5, 1.0, TRUST, "1 restarts agree"),
    ):
        object.__setattr__(restart, "elbo", float(elbo))
        object.__setattr__(restart, "elbo_error", error)
        found = fitted.diagnose(restarts=[restart])
        assert found.verdict == verdict, str(found)
        assert any(reason in line for line in found.reasons), str(found)


def test_a_density_that_is_zero_in_part_of_the_space_is_reported():
    target = Target.from_logdensity(
        lambda z: jnp.where(z[0] > 0, -z[0], -jnp.inf) - 0.5 * z[1] ** 2, dim=2
    )
    found = mean_field(target, [0.5, 0.0], [1.0, 1.0]).diagnose()
    assert found.verdict == DO_NOT
    # The share of N(0.5, 1) below zero; quasi-random draws are closer than independent ones.
    share = 0.30854
    assert abs(found.bad_share - share) < 5 * math.sqrt(share * (1 - share) / found.draws)


def test_a_variable_is_judged_on_the_scale_on_which_it_is_read():
    """The best Gaussian's sd is 0.88 of the log's (by quadrature), and 0.67 of the noise's own."""
    fitted = mean_field(posteriors.noise(), [1 / 8], [math.sqrt(1 / 8)])
    found = fitted.diagnose()
    assert found.verdict != TRUST, str(found)
    assert any("1 of 2 sds" in line and line.endswith(" in noise") for line in found.reasons), str(found)
    assert found.std_ratio.shape == (1,)
    alone = mean_field(
        Target.from_logdensity(lambda z: -4 * z[0] - 2 * jnp.exp(-2 * z[0]), dim=1),
        [1 / 8],
        [math.sqrt(1 / 8)],
    )
    assert alone.diagnose().verdict == TRUST


def test_any_family_is_judged():
    """A flow at its random start is far off."""
    q = RealNVP.init(3, key=jr.key(0))
    found = posteriors.result(posteriors.gaussian(), q).diagnose()
    assert found.verdict == (CORRECTED if found.by_chains else DO_NOT)
    assert found.gain > 0.5


def test_a_real_fit_can_be_asked_and_answers_the_same_every_time():
    fitted = fit(posteriors.logistic(), "mean-field", key=jr.key(0))
    first, second = fitted.diagnose(draws=1000), fitted.diagnose(draws=1000)
    assert first.verdict == TRUST, str(first)
    assert str(first) == str(second)
    assert first.draws >= 1000
