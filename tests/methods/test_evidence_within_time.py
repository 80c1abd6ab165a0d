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
