"""Draws of batch and match: where a density is flat, an update is the average of its draws."""

import jax.numpy as jnp
import numpy as np
from sessions import session_of

import quietgrad as qg
from quietgrad.solvers.bam import BatchAndMatch, MatchState


def test_every_iteration_has_draws_of_its_own():
    """Without gradients, (1 + step) mean' = mean + step * average, with step = draws * dim / (t + 1)."""
    target = qg.Target.from_logdensity(lambda z: 0.0 * jnp.sum(z), dim=2)
    session = session_of(target, qg.FullRank(jnp.zeros(2), jnp.zeros(3)))
    solver, mean, averages = BatchAndMatch(draws=4, piece=1), np.array([1.0, -2.0]), []
    for t in (0, 1, 2, 1):
        state = MatchState(mean, np.eye(2), t)
        after, step = solver.step(session, state, None).state, 4 * 2 / (t + 1)
        averages.append(((1 + step) * after.mean - mean) / step)
    first, second, third, again = averages
    np.testing.assert_array_equal(second, again)
    # Averages of independent draws; equal ones would differ by rounding.
    for one, other in ((first, second), (first, third), (second, third)):
        assert np.all(np.abs(one - other) > 1e-6)
