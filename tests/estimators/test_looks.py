"""The draws by which `quiet` chooses are not those of the step that it chooses for."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg


def test_a_look_has_draws_of_its_own():
    """A choice by the same draws would follow their noise."""
    points = []

    def log_density(z):
        jax.debug.callback(lambda z: points.append(np.asarray(z)), z)
        return -0.5 * jnp.sum(z**2)

    target, q = qg.Target(log_density, dim=2), qg.MeanField(jnp.ones(2), jnp.zeros(2))
    estimator = qg.estimator("quiet", draws=2)
    state = estimator.init(target, q)
    for due in (True, True, True, False):
        points.clear()
        _, state = estimator.step(target, q, state, key=jr.key(3))
        jax.effects_barrier()
        distinct = np.unique(np.round(np.stack(points), 9), axis=0)
        # The step's two draws, and four pairs beside them if there was a look.
        assert len(distinct) == (2 + 8 if due else 2)
