"""The diagnosis of the ladder's answers has a limit of time, and says what it left out."""

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.diagnostics.settings import DEFAULT
from quietgrad.evaluation.elbo_terms import ElboEvaluator
from quietgrad.families import MeanField
from quietgrad.methods.rungs import Evidence
from quietgrad.session import Candidate


@pytest.mark.parametrize(("seconds", "chains"), [(np.inf, True), (0.0, False)])
def test_without_time_there_are_no_chains(seconds, chains):
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - z[0] * z[1] / 4, dim=4)
    q = MeanField(loc=jnp.zeros(4), log_std=jnp.zeros(4))
    answer = Candidate(
        q, 0, ElboEvaluator(target, pairs=32, seed=jnp.array([0, 1], jnp.uint32)).terms(q)
    )
    found = Evidence.of(target, answer, np.random.default_rng(0), 400, DEFAULT, seconds).found
    assert found is not None
    assert (found.begun is not None) == chains
    assert bool(found.unseen) != chains


@pytest.mark.parametrize("std", [0.9, 1.0, 1.05])
def test_the_gap_is_half_the_variance_of_log_weights_where_terms_do_not_have_it(std):
    """As where pairs meet rows of their own. Log weights are (1 / std^2 - 1) z^2 / 2 and a constant."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=4)
    q = MeanField(loc=jnp.zeros(4), log_std=jnp.full(4, jnp.log(std)))
    terms = ElboEvaluator(target, pairs=32, seed=jnp.array([0, 1], jnp.uint32)).terms(q)
    answer = Candidate(q, 0, terms._replace(variance=np.nan))
    found = Evidence.of(target, answer, np.random.default_rng(0), 400, DEFAULT, 0.0)
    variance = 4 * 0.5 * (1 - std**2) ** 2
    assert found.found is not None
    # A chi square of four degrees of freedom has a kurtosis of 3 + 12 / 4.
    error = variance * np.sqrt((6 - 1) / found.found.draws.log_q.size)
    # The other estimate, by the draws that weights are worth, is the same but for the square of it.
    assert abs(found.gap - 0.5 * variance) < 5 * 0.5 * error + variance**2 + 1e-12
