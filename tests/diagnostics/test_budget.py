"""A verdict within its time: what it leaves out it says, and never trusts what it has not looked at."""

import contextlib
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import posteriors
import pytest

from quietgrad import Diagnostics, FullRank, LowRank, MeanField, Target, fit
from quietgrad.diagnostics.budget import Budget
from quietgrad.diagnostics.diagnose import diagnose
from quietgrad.diagnostics.diagnosis import Ending, Verdict
from quietgrad.diagnostics.draws import carry, draw
from quietgrad.diagnostics.evidence import _sizes as sizes
from quietgrad.diagnostics.evidence import gather
from quietgrad.diagnostics.expected_gain import paired_square
from quietgrad.diagnostics.tolerance import missed, off, plain, significance, unsure
from quietgrad.diagnostics.verdict import judge
from quietgrad.diagnostics.watched import coupled
from quietgrad.evaluation.points import Points
from quietgrad.session.clock import Clock
from quietgrad.status import Status
from quietgrad.targets.target import coordinate_name

ENDED = Ending(Status.CONVERGED, "")


class Counting(Budget):
    """A budget of gradients: a millisecond each, whatever the machine does."""

    def __init__(self, gradients):
        self.count = 0
        super().__init__(1e-3 * gradients, now=lambda: 1e-3 * self.count)

    @contextlib.contextmanager
    def paced(self, gradients):
        yield
        self.count, self.pace = self.count + gradients, 1e-3


def right():
    return posteriors.mean_field(
        posteriors.log_gamma(), np.full(4, math.log(4) - 1 / 8), np.full(4, 0.5)
    )


@pytest.mark.parametrize("gradients", [100, 2000, 4000, 9000, math.inf])
def test_what_there_is_no_time_for_is_said_and_never_trusted(gradients):
    """512 draws, 32 chains of 24 steps and 8 climbs of 40 are the least."""
    fitted, budget = right(), Counting(gradients)
    found = gather(fitted.target, fitted.q, np.random.default_rng(0), 2000, Diagnostics(), budget)
    verdict, reasons = judge(found, ENDED)
    assert verdict is not Verdict.TRUST or not found.unseen
    assert verdict is Verdict.TRUST or found.unseen or found.further
    assert bool(found.unseen) == (gradients < 512 + 32 * 24 + 8 * (24 + 40))
    assert budget.count <= max(gradients, 512)
    if found.unseen:
        assert any("not looked at for lack of time: short chains" in line for line in reasons.wrong)
        assert verdict is Verdict.DO_NOT_TRUST


def test_a_verdict_without_time_says_what_more_time_would_buy():
    found = right().diagnose(seconds=1e-6)
    assert found.verdict is Verdict.DO_NOT_TRUST
    assert found.unseen
    assert "diagnose(seconds=...)" in found.time
    assert found.time in str(found)
    assert "diagnose(seconds=...)" in found._repr_html_()
    assert any("more time" in line for line in found.advice)
    longer = right().diagnose(seconds=600)
    assert longer.verdict is Verdict.TRUST
    assert longer.time == ""
    assert longer.limit == 600
    with pytest.raises(ValueError, match="seconds must be positive; got 0"):
        right().diagnose(seconds=0)


def test_the_limit_is_the_fit_s_own_wait_or_five_seconds():
    assert right().diagnose().limit == 600
    quick = dataclasses.replace(right(), clock={"total": 0.2})
    assert quick.diagnose().limit == Diagnostics().least_seconds == 5


def test_chains_stop_where_the_next_round_does_not_fit_and_say_so():
    """A q that is 0.21 sds off is close to the limit of 0.25, so that every round leaves it open."""
    settings = Diagnostics(chains=32, scouts=8)
    shifted = posteriors.mean_field(
        posteriors.gaussian(), posteriors.MEAN + 0.22, np.sqrt(np.diagonal(posteriors.COVARIANCE))
    )

    def gathered(budget):
        return gather(shifted.target, shifted.q, np.random.default_rng(0), 500, settings, budget)

    whole, short = gathered(Counting(math.inf)), gathered(Counting(6000))
    assert short.gradients < whole.gradients
    assert not whole.further
    assert any("longer chains" in part for part in short.further)
    assert not short.unseen


@pytest.mark.parametrize(("chains", "scouts"), [(400, 200), (96, 32), (80, 4), (2000, 8)])
def test_chains_and_climbs_become_fewer_alike_where_time_is_short(chains, scouts):
    """By the share of the time that all of them would take, and both are left out only where there is
    no time for the least of them."""
    settings, fitted = Diagnostics(chains=chains, scouts=scouts, tails_share=0.0), right()
    drawn = draw(fitted.q, Points(fitted.target, float), np.random.default_rng(0), 64)
    least = min(chains, 32), min(scouts, 8)

    def cost(count, far):
        return settings.leapfrogs[0] * (count + far) + settings.trials * far

    for gradients in np.linspace(0.9 * cost(*least), 1.1 * cost(chains, scouts), 97).tolist():
        budget = Budget(gradients, now=lambda: 0.0)
        budget.pace = 1.0
        count, far = sizes(drawn, settings, budget)
        if gradients < cost(*least):
            assert (count, far) == (0, 0)
            continue
        assert cost(count, far) <= gradients
        assert least[0] <= count <= chains
        assert least[1] <= far <= scouts
        share = min(1.0, gradients / cost(chains, scouts))
        if share * chains >= least[0] and share * scouts >= least[1]:
            assert (count, far) == pytest.approx((share * chains, share * scouts), abs=1)


def test_progress_says_what_a_verdict_is_at():
    seen = []
    budget = Budget(9.0, show=lambda sight: seen.append(sight().words()))
    fitted = right()
    gather(fitted.target, fitted.q, np.random.default_rng(0), 500, Diagnostics(), budget)
    stages = [line.split(" · ")[0].removeprefix("verdict: ") for line in seen]
    assert stages[:3] == ["draws of q", "climbs to other modes", "chains, round 1 of at most 5"]
    assert stages[-1] == "far tails"
    assert all("of at most 9 s" in line for line in seen)


def hierarchy(groups, dtype):
    """theta_j ~ N(mu, 1), one row each, mu ~ N(0, 1): Gaussian; the best mean-field member is known."""
    rows = np.random.default_rng(0).normal(size=groups)
    y = jnp.asarray(rows, dtype)

    def log_density(z):
        mu, theta = z[0], z[1:]
        return -0.5 * (mu**2 + jnp.sum((theta - mu) ** 2) + jnp.sum((y - theta) ** 2))

    # Given mu, theta_j ~ N((mu + y_j) / 2, 1/2); mu has precision 1 + groups / 2 and mean from it.
    mu = np.sum(rows) / 2 / (1 + groups / 2)
    mean = np.concatenate([[mu], (mu + rows) / 2])
    return Target.from_logdensity(log_density, groups + 1), mean


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_of_many_coordinates_the_coupled_ones_and_a_sample_are_judged(dtype):
    """Given the others, mu has precision 1 + groups; its own is about half of that: q's sd is 0.71."""
    groups, settings = 600, Diagnostics(most_coordinates=100)
    target, mean = hierarchy(groups, dtype)
    std = np.concatenate([[(1 + groups) ** -0.5], np.full(groups, 2**-0.5)])
    q = MeanField(jnp.asarray(mean, dtype), jnp.log(jnp.asarray(std, dtype)))
    drawn = draw(q, Points(target, q.dtype), np.random.default_rng(0), 500)
    assert coupled(drawn)[0] == 0
    found = diagnose(target, q, ENDED, np.random.default_rng(0), settings=settings)
    assert found.verdict is not Verdict.TRUST
    wrong = next(line for line in found.reasons if "off: 1 of 100 sds" in line)
    assert wrong.endswith("coordinate 0")
    truth = math.sqrt((1 + groups / 2) / (1 + groups))
    assert abs(found.std_ratio[0] - truth) < 5 * found.std_ratio_error[0]
    assert np.count_nonzero(np.isfinite(found.shift_error)) == 100
    assert found.shift.shape == (groups + 1,)
    # Of the others nothing is known, so that no correction is offered.
    unseen = ~np.isfinite(found.shift_error)
    assert np.all(np.isinf(found.std_ratio_error[unseen]))
    assert np.all(found.shift[unseen] == 0)
    assert np.all(found.std_ratio[unseen] == 1)
    assert any("judged 100 of 601 coordinates" in line for line in found.reasons)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_noise_in_one_of_many_coordinates_is_no_fault_and_a_fault_is_found(dtype):
    """700 independent coordinates: all right, and then one of them an sd off."""
    dim = 700
    target = Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim)
    settings = Diagnostics(axes=4)
    for shift in (0.0, 1.0):
        loc = np.zeros(dim)
        loc[17] = shift
        q = MeanField(jnp.asarray(loc, dtype), jnp.zeros(dim, dtype))
        found = diagnose(target, q, ENDED, np.random.default_rng(3), settings=settings)
        assert (found.verdict is Verdict.TRUST) == (not shift), f"{shift}: {found}"
        if shift:
            assert any("in coordinate 17" in line for line in found.reasons)


def test_the_largest_of_many_normal_errors_is_called_off_in_one_of_twenty():
    settings, rng = Diagnostics(), np.random.default_rng(0)
    assert significance(500, settings) == settings.significant
    largest = np.max(np.abs(rng.standard_normal((4000, 1000))), axis=1)
    rate = np.mean(largest > significance(1000, settings))
    assert abs(rate - settings.false_alarms) < 5 * math.sqrt(0.05 * 0.95 / 4000)


def test_of_many_numbers_only_what_noise_does_not_explain_is_open():
    rng, many = np.random.default_rng(0), 2000
    error = np.full(many, 0.07)
    found = posteriors.comparison(0.07 * rng.standard_normal(many), error)
    few = posteriors.comparison(found.shift[:400], error[:400])
    assert np.any(unsure(few)[0])
    assert not np.any(unsure(found)[0])
    assert not np.any(off(found)[0])
    # A mean that is off by 0.25 could hide, so that chains go on.
    assert missed(found) > 0.25
    assert not plain(found)
    sharper = posteriors.comparison(0.5 * found.shift, 0.5 * error)
    assert plain(sharper)


@pytest.mark.parametrize("field", ["mean", "gain"])
def test_the_numbers_of_a_verdict_are_fields(field):
    """A q that is half an sd off is right if means may be off by two sds and steps may gain a nat."""
    moved = posteriors.full_rank(posteriors.gaussian(), posteriors.MEAN + 0.3, posteriors.COVARIANCE)
    assert moved.diagnose().verdict is not Verdict.TRUST
    loose = Diagnostics(mean=2.0, gain=1.0)
    assert moved.diagnose(settings=loose).verdict is Verdict.TRUST
    tight = dataclasses.replace(loose, **{field: 1e-3})
    assert moved.diagnose(settings=tight).verdict is not Verdict.TRUST


def test_leaving_a_group_out_is_what_the_error_says():
    groups = np.random.default_rng(0).normal(size=(7, 30)) + 0.3

    def estimate(some):
        pairs = [some[i] @ some[j] for i in range(len(some)) for j in range(len(some)) if i != j]
        return 0.5 * np.mean(pairs)

    left = [estimate(np.delete(groups, i, axis=0)) for i in range(7)]
    found = paired_square(groups)
    assert found.nats == pytest.approx(estimate(groups))
    assert found.error == pytest.approx(math.sqrt(6 * np.var(left)))


def test_scales_of_a_low_rank_q_need_no_matrix_of_its_dimension(key):
    q = LowRank.init(40, key=key)
    e, slope = np.random.default_rng(0).normal(size=(2, 8, q.base_dim))
    std = np.exp(np.asarray(q.log_std))
    inverse = np.diagonal(np.linalg.inv(q.host_covariance()))
    dense = (std**2 * inverse + std * np.mean(slope[:, :40] * e[:, :40], axis=0)) / np.sqrt(2)
    np.testing.assert_allclose(q.scale_gradient(e, slope[:, :40]), dense, rtol=1e-9, atol=1e-12)


@pytest.mark.turns(2)
@pytest.mark.parametrize("family", [MeanField, LowRank, FullRank])
def test_draws_on_the_host_are_those_of_the_device(family, key):
    q = family.init(6, key=key)
    e = np.random.default_rng(0).normal(size=(5, q.base_dim))
    z, log_q = carry(q, e)
    there = jax.vmap(q.transport_and_log_prob)(jnp.asarray(e))
    np.testing.assert_allclose(z, there[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(log_q, there[1], rtol=1e-9)


def test_coordinates_have_the_names_of_their_places():
    example = {"a": jnp.zeros((2, 3)), "b": {"c": jnp.zeros(()), "d": jnp.zeros(2)}}
    target = Target(lambda z: 0.0 * z["b"]["c"], example=example)
    assert target.unravel is not None
    numbers = target.unravel(jnp.arange(9.0))
    names = [coordinate_name(target, i) for i in range(9)]
    assert names[int(numbers["a"][1, 2])] == "coordinate a[1, 2]"
    assert names[int(numbers["b"]["c"])] == "coordinate b.c"
    assert names[int(numbers["b"]["d"][1])] == "coordinate b.d[1]"
    assert len(set(names)) == 9


def test_a_verdict_after_a_fit_compiles_nothing_but_the_model_s_own_map(key):
    result = fit(posteriors.logistic(), "full-rank", progress=False, key=key)
    with Clock().running() as clock:
        result.diagnose()
    assert clock.programs == 0


def test_a_budget_by_a_clock_of_its_own():
    """Ten seconds, of which gradients at half a second each take what the arithmetic says."""
    at = [100.0]
    budget = Budget(10.0, now=lambda: at[0])
    # Nothing is known of the pace yet, so that there is time for anything.
    assert budget.affords(10**9)
    with budget.paced(4):
        at[0] += 2.0
    assert (budget.pace, budget.spent, budget.left) == (0.5, 2.0, 8.0)
    assert budget.share(16) == 1.0
    assert budget.share(32) == pytest.approx(0.5)
    assert budget.share(32, of=0.25) == pytest.approx(0.125)
    assert budget.affords(16)
    assert not budget.affords(17)
    with budget.paced(0):
        at[0] += 3.0
    assert budget.pace == 3.0
    at[0] += 50.0
    assert (budget.left, budget.share(1)) == (0.0, 0.0)
    assert budget.affords(0)


def test_a_part_that_is_slower_than_planned_ends_within_the_time():
    """Nine tenths are planned; the tenth that is kept is for a pace that is worse than the last one."""
    clock = [0.0]
    budget = Budget(10.0, reserve=0.1, now=lambda: clock[0])
    with budget.paced(100):
        clock[0] += 5.0
    assert budget.left == 4.0
    assert budget.affords(80)
    assert not budget.affords(81)
    clock[0] = 9.5
    assert budget.left == 0.0
    assert Budget(math.inf, reserve=0.1).left == math.inf


def test_a_verdict_plans_without_its_reserve():
    fitted, rng = right(), np.random.default_rng(0)
    settings = Diagnostics(reserve=1.0)
    found = diagnose(fitted.target, fitted.q, ENDED, rng, seconds=600.0, settings=settings)
    assert found.unseen
    assert found.verdict is Verdict.DO_NOT_TRUST
