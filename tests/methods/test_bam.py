"""Batch and match: the update solves its equation, commutes with affine maps, and finds Gaussians."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import ElboEvaluator
from quietgrad.solvers import bam
from quietgrad.solvers.bam import matched

DIM = 3


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(DIM, DIM))
    return rng.normal(size=DIM), root @ root.T, rng.normal(size=(5, DIM)), rng.normal(size=(5, DIM))


def test_the_update_solves_its_equation(batch):
    mean, covariance, z, g = batch
    step, zm, gm = 7.0, np.mean(z, axis=0), np.mean(g, axis=0)
    u = step * np.cov(g.T, bias=True) + step / (1 + step) * np.outer(gm, gm)
    off = mean - zm
    v = covariance + step * np.cov(z.T, bias=True) + step / (1 + step) * np.outer(off, off)
    after_mean, after = matched(mean, covariance, z, g, step)
    np.testing.assert_allclose(after @ u @ after + after, v, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((1 + step) * after_mean, mean + step * (zm + after @ gm), rtol=1e-9)


def test_affine_maps_commute_with_the_update(batch):
    mean, covariance, z, g = batch
    a, b = np.array([[2.0, 0, 0], [100.0, 30.0, 0], [0.5, 7.0, 0.1]]), np.array([1.0, -40.0, 0.2])
    after_mean, after = matched(mean, covariance, z, g, 3.0)
    gradients = np.linalg.solve(a.T, g.T).T
    moved_mean, moved = matched(a @ mean + b, a @ covariance @ a.T, z @ a.T + b, gradients, 3.0)
    np.testing.assert_allclose(moved_mean, a @ after_mean + b, rtol=1e-6)
    np.testing.assert_allclose(moved, a @ after @ a.T, rtol=1e-6)


def test_a_gaussian_is_found():
    precision, mean = jnp.array([[2.0, 1.2], [1.2, 1.0]]), jnp.array([3.0, -50.0])
    target = qg.Target.from_logdensity(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), dim=2)
    result = qg.fit(target, "full-rank", method="bam", key=jr.key(0))
    assert result.status is qg.Status.CONVERGED
    best = 0.5 * (2 * np.log(2 * np.pi) - np.linalg.slogdet(np.asarray(precision))[1])
    terms = ElboEvaluator(target, pairs=2000, seed=jr.key_data(jr.key(1))).terms(result.q)
    # Score matching is exact on Gaussians: what is left is the judge's gain of 0.1 nats.
    assert abs(terms.elbo - best) < 0.1 + 5 * terms.error


@pytest.mark.parametrize("mode", [True, False])
def test_iterations_begin_at_the_mode_if_asked_to(mode):
    """Far from where the family begins, and no more than a Gaussian is wide from it."""
    place = jnp.array([30.0, -50.0])
    target = qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.cosh(0.1 * (z - place))), dim=2)
    seen = []
    method = qg.Bam(iterations=1, mode=mode)
    qg.fit(target, "full-rank", method=method, callback=seen.append, key=jr.key(0))
    away = np.abs(np.asarray(seen[0].q.mean()) - place)
    # The posterior's sds are about ten.
    assert np.all(away < 0.1) if mode else np.all(away > 20)


def test_what_it_refuses():
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=2)
    with pytest.raises(ValueError, match="any covariance, not MeanField"):
        qg.fit(target, "mean-field", method="bam", key=jr.key(0))
    rows = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: -((x @ z) ** 2), np.ones((4, 2)), dim=2)
    with pytest.raises(ValueError, match="leave batch_size out"):
        qg.fit(rows, "full-rank", method="bam", batch_size=2, key=jr.key(0))


def test_a_wall_is_met_with_a_narrower_q():
    """Zero density beyond 3: batches with such draws make q narrower, and the fit goes on."""
    target = qg.Target.from_logdensity(
        lambda z: jnp.where(jnp.max(jnp.abs(z)) < 3.0, -8.0 * z @ z, jnp.nan), dim=2
    )
    result = qg.fit(target, "full-rank", method=qg.Bam(iterations=200), key=jr.key(0))
    np.testing.assert_allclose(np.sqrt(result.q.variance()), 0.25, rtol=0.2)


def test_a_covariance_without_a_root_ends_the_fit_and_loses_nothing(monkeypatch):
    """As on a horseshoe, where an eigenvalue solver gave up and the fit with it."""
    calls = []

    def gives_up(*given):
        calls.append(1)
        if len(calls) > 30:
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        return matched(*given)

    monkeypatch.setattr(bam, "matched", gives_up)
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    result = qg.fit(target, "full-rank", method="bam", key=jr.key(0))
    assert result.status is qg.Status.NON_FINITE
    assert "ill-conditioned" in result.explain()
    assert np.isfinite(result.elbo)
