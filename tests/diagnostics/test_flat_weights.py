"""Weights that are all but equal: q is the posterior wherever its draws are, however chains mix."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import quietgrad as qg
from quietgrad.diagnostics.diagnose import diagnose
from quietgrad.diagnostics.diagnosis import Ending, Verdict
from quietgrad.diagnostics.psis import smooth
from quietgrad.families import Components, FullRank, Mixture
from quietgrad.status import Status

APART = 4.0
CONVERGED = Ending(Status.CONVERGED, "")


def two_modes(weight):
    """Unit Gaussians at -4 and 4, the second with this weight."""

    def log_density(z):
        first = jnp.log(1 - weight) - 0.5 * jnp.sum((z + jnp.array([APART, 0.0])) ** 2)
        second = jnp.log(weight) - 0.5 * jnp.sum((z - jnp.array([APART, 0.0])) ** 2)
        return logsumexp(jnp.stack([first, second]))

    return qg.Target.from_logdensity(log_density, dim=2)


def mixture(weight):
    log_weights = np.log([1 - weight, weight])
    loc = np.array([[-APART, 0.0], [APART, 0.0]])
    return Mixture.of(Components(log_weights, loc, np.stack([np.eye(2)] * 2)), np.dtype(float))


@pytest.mark.parametrize("weight", [0.5, 0.2])
def test_a_mixture_that_is_the_posterior_is_trusted(weight):
    """No chain ever goes from one mode to the other."""
    found = diagnose(two_modes(weight), mixture(weight), CONVERGED, np.random.default_rng(0))
    assert found.verdict is Verdict.TRUST
    assert any("several modes" in reason for reason in found.reasons)


def test_a_mixture_with_wrong_weights_is_not_trusted():
    found = diagnose(two_modes(0.2), mixture(0.5), CONVERGED, np.random.default_rng(0))
    assert found.verdict is not Verdict.TRUST


def test_one_of_two_modes_is_not_trusted():
    """Weights of a Gaussian at one mode are equal, too."""
    one = FullRank(loc=jnp.array([-APART, 0.0]), packed=jnp.zeros(3))
    found = diagnose(two_modes(0.5), one, CONVERGED, np.random.default_rng(0))
    assert found.verdict is Verdict.DO_NOT_TRUST


def test_the_ladder_finds_both_and_they_are_trusted():
    result = qg.fit(two_modes(0.3), "auto", key=jr.key(0))
    assert isinstance(result.q, Mixture)
    assert result.elbo == pytest.approx(float(np.log(2 * np.pi)), abs=5 * result.elbo_error + 0.01)
    assert result.diagnose().verdict is Verdict.TRUST


def test_the_tail_of_weights_that_are_equal_but_for_rounding_says_nothing():
    """Heavy-tailed rounding of a right answer is no heavy tail; draws that count twice are looked at."""
    rng = np.random.default_rng(0)
    noise = 1e-3 * rng.standard_t(1.2, 2000)
    weights = smooth(np.clip(noise, -0.5, 0.5))
    assert weights.khat > weights.limit
    assert weights.usable
    heavy = smooth(np.clip(noise, -0.5, 0.5) + np.where(np.arange(2000) < 3, 1.0, 0.0))
    assert heavy.khat > heavy.limit
    assert not heavy.usable


def test_chains_that_do_not_enter_a_neck_are_not_held_against_equal_weights():
    """Centred eight schools: q is the posterior to rounding, and one move in a hundred diverges."""
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_density(z):
        mean, log_std, own = z[0], z[1], z[2:]
        prior = -0.5 * (mean / 5) ** 2 + log_std - jnp.log1p(jnp.exp(2 * (log_std - jnp.log(5.0))))
        locals = -8 * log_std - 0.5 * jnp.sum(((own - mean) * jnp.exp(-log_std)) ** 2)
        return prior + locals - 0.5 * jnp.sum(((effect - own) / error) ** 2)

    result = qg.fit(qg.Target.from_logdensity(log_density, dim=10), "auto", key=jr.key(0))
    found = result.diagnose()
    assert found.verdict is Verdict.TRUST, found.reasons
    assert result.elbo_error < 0.02
