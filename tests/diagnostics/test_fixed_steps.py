"""When the step of a verdict's chains is adapted, and when it stays."""

import jax.numpy as jnp
import numpy as np

import quietgrad as qg
from quietgrad.diagnostics.chains import Sampler
from quietgrad.diagnostics.charts import PlainChart
from quietgrad.diagnostics.metric import Metric
from quietgrad.evaluation.points import Points


def test_the_step_of_chains_stays_once_they_were_asked_for():
    """From a step that is far too long: it adapts in the first round, and in no later one."""
    target = qg.Target.from_logdensity(lambda z: -50.0 * jnp.sum(z**2), dim=2)
    points, rng = Points(target, np.dtype(float)), np.random.default_rng(0)
    start = 0.1 * rng.standard_normal((16, 2))
    sampler = Sampler(PlainChart(points), Metric(np.zeros(2), np.ones(2)), start, rng)
    before = sampler.step
    sampler.advance(3)
    adapted = sampler.step
    assert adapted < before
    sampler.advance(3)
    sampler.run(400)
    assert sampler.step == adapted
    # Until it is to aim elsewhere.
    sampler.aim_at((0.99, 1.0), 16)
    sampler.advance(3)
    assert sampler.step < adapted
