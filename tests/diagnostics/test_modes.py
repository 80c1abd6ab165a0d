"""Several modes: the mass that q leaves out, and chains that are judged in the mode where they began."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import quietgrad as qg
from quietgrad.diagnostics.cells import bridge
from quietgrad.diagnostics.chains import Chains
from quietgrad.diagnostics.diagnose import diagnose
from quietgrad.diagnostics.diagnosis import Ending, Verdict
from quietgrad.diagnostics.evidence import _from_chains, _Run, gather
from quietgrad.diagnostics.local_mass import mass_around
from quietgrad.diagnostics.metric import Metric, metric_of
from quietgrad.evaluation.points import Points
from quietgrad.families import Components, FullRank, Mixture
from quietgrad.status import Status

CONVERGED = Ending(Status.CONVERGED, "")


def gaussians(*parts):
    """A mixture of (weight, place along the first axis, sd) in three coordinates."""

    def log_density(z):
        logs = []
        for weight, place, std in parts:
            square = jnp.sum(((z - jnp.array([place, 0.0, 0.0])) / std) ** 2)
            logs.append(math.log(weight) - 3 * math.log(std) - 0.5 * square)
        return logsumexp(jnp.stack(logs)) - 1.5 * math.log(2 * math.pi)

    return qg.Target.from_logdensity(log_density, dim=3)


def gaussian(place):
    return FullRank(loc=jnp.array([place, 0.0, 0.0]), packed=jnp.zeros(6))


def heavy(weight):
    """Student-t modes with 5 degrees of freedom at -8 and 8: Gaussians have k-hat above its limit."""

    def log_density(z):
        t = [-3.5 * jnp.log1p(jnp.sum((z - jnp.array([place, 0.0])) ** 2) / 5) for place in (-8.0, 8.0)]
        return logsumexp(jnp.stack([jnp.log(1 - weight) + t[0], jnp.log(weight) + t[1]]))

    return qg.Target.from_logdensity(log_density, dim=2)


def at_both(weight):
    # The sds of such a mode are sqrt(5 / 3).
    root = np.stack([1.25 * np.eye(2)] * 2)
    loc = np.array([[-8.0, 0.0], [8.0, 0.0]])
    return Mixture.of(Components(np.log([1 - weight, weight]), loc, root), np.dtype(float))


def test_a_bridge_finds_the_ratio_though_q_is_too_narrow():
    rng = np.random.default_rng(0)
    q, p = rng.normal(0, 1, 2000), rng.normal(0.3, 1.5, (5, 400))

    def log_ratio(z):
        return math.log(3 / 1.5) - 0.5 * ((z - 0.3) / 1.5) ** 2 + 0.5 * z**2

    found, error = bridge(log_ratio(q), log_ratio(p))
    assert error < 0.1
    assert abs(found - math.log(3)) < 5 * error


def test_the_mass_that_is_left_out_is_that_of_the_other_mode():
    """Exact up to the noise of an average of weights, which are equal: both modes are Gaussian."""
    target, rng = gaussians((0.7, 0.0, 1.0), (0.3, 9.0, 0.5)), np.random.default_rng(0)
    metric = Metric(np.zeros(3), np.eye(3))
    place = np.array([8.0, 0.5, 0.0])
    points = Points(target, np.dtype(float))
    found = mass_around(points, gaussian(0.0), (math.log(0.7),) * 2, place, metric, rng)
    assert found is not None
    np.testing.assert_allclose(found.center, [9.0, 0.0, 0.0], atol=1e-3)
    assert found.log_mass == pytest.approx(math.log(0.3 / 0.7), abs=0.01)
    covering = Mixture.of(
        Components(
            np.log([0.7, 0.3]),
            np.array([[0.0, 0, 0], [9, 0, 0]]),
            np.stack([np.eye(3), 0.5 * np.eye(3)]),
        ),
        np.dtype(float),
    )
    covered = mass_around(points, covering, (0.0, 0.0), place, metric, rng)
    assert covered is not None
    assert covered.log_mass == -math.inf


@pytest.mark.parametrize("reached", [15.0, 0.0])
def test_places_are_left_out_only_if_chains_from_q_end_at_none_that_q_has_less_of(reached):
    """q has a third of the posterior's sd. What counts is where chains end, not where they have been."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z / 3) ** 2), dim=2)
    q, rng = qg.MeanField(jnp.zeros(2), jnp.zeros(2)), np.random.default_rng(2)
    found, points = gather(target, q, rng, 500), Points(target, np.dtype(float))
    z = 3 * rng.standard_normal((60, 40, 2))
    z[:2], z[-1], z[-1, 0] = 100.0, 0.0, [reached, 0.0]
    chains = Chains(z[0], z, -0.5 * np.sum((z / 3) ** 2, axis=2), 0.9)
    metric, modes = metric_of(found.draws), np.array([[0.0, 0.0], [6.0, 0.0]])
    run = _Run(chains, chains, modes, found.moved, None, metric, None)
    missed = _from_chains(found, points, q, metric, run, rng).missed
    # At five sds the posterior is 100 nats above q; 512 draws of it do not get that far.
    assert bool(missed) == (reached == 0)


def test_a_high_mode_without_mass_is_no_reason_for_distrust():
    """Twenty times as high as the rest, with 0.25 % of the mass."""
    target = gaussians((0.9975, 0.0, 1.0), (0.0025, 6.0, 0.05))
    found = diagnose(target, gaussian(0.0), CONVERGED, np.random.default_rng(0))
    assert not any("never looks" in reason for reason in found.reasons)


def test_a_mode_with_mass_is_one():
    target = gaussians((0.85, 0.0, 1.0), (0.15, 9.0, 0.5))
    found = diagnose(target, gaussian(0.0), CONVERGED, np.random.default_rng(0))
    assert found.verdict is Verdict.DO_NOT_TRUST
    assert any("never looks" in reason for reason in found.reasons)


def test_how_far_away_a_mode_must_be_goes_by_the_posterior_s_scale_and_not_by_that_of_q():
    """q is five times too wide, and its chains say so: forty posterior sds are far, eight of q or not.

    Where scales are known one by one, no Gaussian at the mode tells its mass, and the chains there must.
    """
    target, far = gaussians((0.5, 0.0, 1.0), (0.5, 40.0, 1.0)), 40.0
    wide = qg.MeanField(jnp.zeros(3), jnp.array([math.log(5.0), 0.0, 0.0]))
    settings = qg.Diagnostics(per_coordinate=1000, scouts=96)
    found = gather(target, wide, np.random.default_rng(0), 512, settings)
    ratio, error = found.moved.log_ratio[0], found.moved.log_ratio_error[0]
    assert abs(ratio - math.log(5)) < 5 * error
    assert found.elsewhere is not None
    assert found.elsewhere.place[0] == pytest.approx(far, abs=settings.apart_std)


@pytest.mark.parametrize("weight", [0.5, 0.2])
def test_modes_by_their_mass_are_trusted_though_weights_are_heavy(weight):
    found = diagnose(heavy(weight), at_both(weight), CONVERGED, np.random.default_rng(1))
    assert any("by their mass" in reason for reason in found.reasons)
    assert found.verdict is Verdict.TRUST


def test_wrong_masses_are_found_by_bridges():
    found = diagnose(heavy(0.2), at_both(0.5), CONVERGED, np.random.default_rng(1))
    assert found.verdict is not Verdict.TRUST
    assert any(reason.startswith("off: 1 of 2 means") for reason in found.reasons)
