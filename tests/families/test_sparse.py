"""Gaussians with a sparse root: against dense linear algebra, and on a crossed design."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import sparse

import quietgrad as qg
from quietgrad.families import MeanField, SparseGaussian
from quietgrad.structure import Pattern, pattern_of
from quietgrad.structure.sparsity import of_graph

RATERS, SUBJECTS, EACH = 30, 40, 3


def crossed(raters=RATERS, subjects=SUBJECTS, each=EACH):
    """A mean, effects of raters and effects of subjects; all variances are known."""
    rng = np.random.default_rng(0)
    rater = np.stack([rng.choice(raters, each, replace=False) for _ in range(subjects)])
    y = rng.normal(size=(subjects, each))

    def log_density(z):
        mean, a, b = z[0], z[1 : 1 + raters], z[1 + raters :]
        left = y - mean - b[:, None] - a[rater]
        return -0.5 * (mean**2 / 25 + jnp.sum(a**2) / 0.5 + jnp.sum(b**2) + jnp.sum(left**2))

    return qg.Target.from_logdensity(log_density, dim=1 + raters + subjects), rater


def member(key, pattern):
    q = SparseGaussian.init(pattern.dim, key=key, pattern=pattern)
    values = 0.5 * jr.normal(key, q.values.shape)
    return SparseGaussian(q.loc, q.log_std, values, q.rows, q.columns, q.depth)


def dense(q):
    below = np.zeros((q.dim, q.dim))
    below[np.asarray(q.rows), np.asarray(q.columns)] = np.asarray(q.values)
    return np.exp(np.asarray(q.log_std))[:, None] * (np.eye(q.dim) + below)


def test_the_pattern_of_a_crossed_design_has_two_levels_after_the_mean(key):
    target, rater = crossed()
    found = pattern_of(target)
    assert found is not None
    assert found.depth == 2
    entries = set(zip(found.rows.tolist(), found.columns.tolist(), strict=True))
    after_mean = {(i, 0) for i in range(1, target.dim)}
    pairs = [(1 + r, 1 + RATERS + s) for s, row in enumerate(rater) for r in row]
    assert len(entries) == len(after_mean) + len(set(pairs))
    assert entries > after_mean
    assert all((i, j) in entries or (j, i) in entries for i, j in pairs)


def test_draws_density_score_and_moments_are_those_of_the_root(key):
    q = member(key, pattern_of(crossed()[0]))
    root, e = dense(q), np.asarray(jr.normal(key, (q.dim,)))
    covariance = root @ root.T
    z, log_q, score = q.transport_and_score(jnp.asarray(e))
    np.testing.assert_allclose(z, np.asarray(q.loc) + root @ e, rtol=1e-9)
    expected = jax.scipy.stats.multivariate_normal.logpdf(z, q.loc, jnp.asarray(covariance))
    np.testing.assert_allclose(log_q, expected, rtol=1e-9)
    np.testing.assert_allclose(q.log_prob(z), expected, rtol=1e-9)
    np.testing.assert_allclose(q.inverse(z), e, atol=1e-9)
    np.testing.assert_allclose(score, -np.linalg.solve(covariance, z - q.loc), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(q.variance(), np.diagonal(covariance), rtol=1e-9)
    v = np.asarray(jr.normal(key, (q.dim, 3)))
    np.testing.assert_allclose(q.covariance_matmul(jnp.asarray(v)), covariance @ v, atol=1e-9)
    half = np.asarray(jr.normal(key, (q.dim, q.dim)))
    b = half + half.T
    trace = q.covariance_trace(lambda rows: rows @ b, jnp.diagonal(jnp.asarray(b)))
    np.testing.assert_allclose(trace, np.trace(b @ covariance), rtol=1e-9)
    entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    np.testing.assert_allclose(q.entropy(), entropy, rtol=1e-9)


def test_levels_are_colours_and_heavy_coordinates_come_first():
    ring = np.zeros((6, 6))
    for i in range(1, 6):
        ring[i, i % 5 + 1] = ring[i % 5 + 1, i] = 1.0
    found = of_graph(sparse.csr_matrix(ring), np.array([0]))
    assert found is not None
    # An odd ring takes three colours; everything follows the first coordinate.
    assert found.depth == 3
    assert sum(found.columns == 0) == 5
    assert len(found.rows) == 10


@pytest.mark.parametrize("edges", [np.zeros((5, 5)), np.ones((40, 40)) - np.eye(40)])
def test_no_entries_and_too_many_levels_are_no_pattern(edges):
    assert of_graph(sparse.csr_matrix(edges), np.zeros(0, int)) is None


def test_a_target_without_a_pattern_is_told(key):
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=5)
    with pytest.raises(ValueError, match="no sparse pattern"):
        qg.fit(target, "sparse", key=key, progress=False)


def test_a_pattern_of_other_coordinates_is_refused(key):
    with pytest.raises(ValueError, match="the pattern is for 3 coordinates; got dim 4"):
        SparseGaussian.init(4, key=key, pattern=Pattern.leading(3))


def test_it_starts_from_a_mean_field_member(key):
    q = SparseGaussian.init(4, key=key)
    other = MeanField.init(4, key=jr.key(1))
    begun = q.start_from(other, key=key)
    np.testing.assert_allclose(begun.variance(), other.variance())
    assert begun.depth == q.depth


def test_crossed_effects_are_right_but_for_the_first_level(key):
    """The best root has columns P_ss^-1 e_1, scaled, for each column's entries s (P the precision)."""
    target, _ = crossed()
    precision = -np.asarray(jax.hessian(target.log_density)(jnp.zeros(target.dim)))
    gradient = np.asarray(jax.grad(target.log_density)(jnp.zeros(target.dim)))
    mean = np.linalg.solve(precision, gradient)
    half_log_det = 0.5 * np.linalg.slogdet(2 * np.pi * np.linalg.inv(precision))[1]
    evidence = float(target.log_density(jnp.asarray(mean))) + half_log_det
    result = qg.fit(target, "sparse", method=qg.Auto(by_clock=False), key=key, progress=False)
    logs = []
    for j in range(target.dim):
        own = [j, *np.asarray(result.q.rows)[np.asarray(result.q.columns) == j].tolist()]
        logs.append(0.5 * np.log(2 * np.pi * np.linalg.inv(precision[np.ix_(own, own)])[0, 0]))
    lost = half_log_det - sum(logs)
    uncorrelated = half_log_det - 0.5 * np.sum(np.log(2 * np.pi / np.diagonal(precision)))
    assert lost < 0.1 * uncorrelated
    assert abs(evidence - result.elbo - lost) < 0.1
