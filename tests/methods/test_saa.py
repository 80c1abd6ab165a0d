"""Deterministic fits: the climb at fixed draws, its judge, and what follows it."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.families import REGISTRY
from quietgrad.host_draws import sobol_pairs
from quietgrad.methods.fixed_draws import Climb, climb
from quietgrad.points import Points
from quietgrad.recorder import Candidate, Problem, Recorder

MEAN = jnp.array([1.0, -2.0, 0.5])
STD = jnp.array([0.2, 1.0, 3.0])


@pytest.fixture(scope="module")
def gaussian():
    return qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(((z - MEAN) / STD) ** 2), dim=3)


USUAL = Climb()


def climbed(target, draws, how=USUAL, dim=3):
    start = qg.MeanField.init(dim, key=jr.key(0))
    recorder = Recorder(Problem(target, start), key=jr.key(1))
    e = sobol_pairs(start.base, draws // 2, dim, np.random.default_rng(0))
    return climb(Points(target, start.dtype), start, e, how, recorder), recorder


def test_the_climb_finds_a_gaussian(gaussian):
    found, recorder = climbed(gaussian, 64)
    assert found.rested
    # Antithetic draws make the mean exact; the scale errs by the spread of the draws' second moment,
    # 1/sqrt(2 x 32 independent draws) relative at worst, less for quasi-random points.
    np.testing.assert_allclose(found.q.loc, MEAN, atol=1e-3)
    np.testing.assert_allclose(jnp.exp(found.q.log_std), STD, rtol=1 / np.sqrt(64))
    assert recorder.best.q is found.q


def test_iterates_that_only_overfit_the_draws_are_not_kept():
    """Four draws for 40 correlated coordinates: left alone, the climb ends below the judge's best."""
    x = jr.normal(jr.key(5), (60, 40))
    target = qg.Target.from_logdensity(
        lambda z: -jnp.sum(jnp.logaddexp(0.0, -(x @ z))) - 0.005 * z @ z, dim=40
    )
    judged, recorder = climbed(target, 4, dim=40)
    literal, _ = climbed(target, 4, Climb(patience=50, judged_by_fresh=False), dim=40)
    assert judged.terms.elbo > literal.terms.elbo + 1.0
    assert judged.terms.elbo == max(recorder.history.column("elbo"))


def test_a_climb_knows_by_how_much_its_draws_are_overfitted(gaussian):
    """Four draws for 40 coordinates are, many for three are not; that may end a climb."""
    x = jr.normal(jr.key(5), (60, 40))
    target = qg.Target.from_logdensity(
        lambda z: -jnp.sum(jnp.logaddexp(0.0, -(x @ z))) - 0.005 * z @ z, dim=40
    )
    literal, _ = climbed(target, 4, Climb(patience=50, judged_by_fresh=False), dim=40)
    assert literal.overfit > 2 * literal.terms.error + 10
    many, _ = climbed(gaussian, 512)
    assert abs(many.overfit) < 0.1 + 5 * many.terms.error
    usual, _ = climbed(target, 16, Climb(), dim=40)
    sooner, _ = climbed(target, 16, Climb(overfit=0.25), dim=40)
    assert sooner.rested
    assert sooner.steps < usual.steps


def test_a_climb_that_cannot_catch_up_gives_way_to_its_rival(gaussian):
    """On a ridge that takes hundreds of iterations, a million nats below the rival."""
    full, _ = climbed(gaussian, 32)

    def ridge(z):
        return -1e5 * (z[1] - z[0] ** 2) ** 2 - (z[0] - 5.0) ** 2 - z[2] ** 2 - 1e6

    target = qg.Target.from_logdensity(ridge, dim=3)
    start = qg.MeanField.init(3, key=jr.key(0))
    e = sobol_pairs(start.base, 16, 3, np.random.default_rng(0))
    book = Recorder(Problem(target, start), key=jr.key(1))
    patient = Climb(patience=1000)
    gave_up = climb(
        Points(target, start.dtype),
        start,
        e,
        patient,
        book,
        rival=Candidate(full.q, full.steps, full.terms),
    )
    # Three pieces, which grow while they gain plenty, and one more.
    assert gave_up.steps <= 10 + 15 + 22 + 10
    assert not gave_up.rested


def test_fits_and_says_converged(gaussian):
    result = qg.fit(gaussian, method=qg.Saa(polish_steps=20), key=jr.key(1))
    # Less than 0.1 nats is not worth going on for, and a mean that is a sds off costs a^2 / 2.
    assert np.all(np.abs(result.q.loc - MEAN) < np.sqrt(0.2) * STD)
    assert result.status is qg.Status.CONVERGED
    assert np.all(np.diff(result.history["seconds"]) >= 0)


def test_samplers_by_name(gaussian):
    named, given = (
        qg.fit(gaussian, method=qg.Saa(sampler=sampler, polish_steps=0), key=jr.key(1))
        for sampler in ("latin-hypercube", qg.LatinHypercube())
    )
    np.testing.assert_array_equal(named.q.loc, given.q.loc)
    with pytest.raises(ValueError, match=r"unknown sampler 'sobel'.*rqmc"):
        qg.Saa(sampler="sobel")


def test_minibatches_are_refused(gaussian):
    x = np.ones((10, 3))
    target = qg.Target(lambda z: -z @ z, lambda z, x: -((x @ z) ** 2), x, dim=3)
    with pytest.raises(ValueError, match="leave batch_size out"):
        qg.fit(target, method="saa", batch_size=2, key=jr.key(1))


@pytest.mark.parametrize("family", ["full-rank", "real-nvp-affine", "real-nvp"])
def test_every_family_ends_with_a_finite_answer(gaussian, family):
    result = qg.fit(gaussian, family, method=qg.Saa(polish_steps=100), key=jr.key(1))
    assert np.isfinite(result.elbo)
    assert isinstance(result.q, REGISTRY[family])
