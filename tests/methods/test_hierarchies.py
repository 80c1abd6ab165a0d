"""Hierarchies by name: within a few hundredths of a nat of the exact answer, in both precisions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hierarchy_models import exact, normal_groups, normal_target

import quietgrad as qg

# What issue-level accuracy means here: nats below log Z, errors of means in sds, of sds in shares.
NATS, SHIFT, SHARE = 0.05, 0.05, 0.05
DRAWS = 20_000
# Single precision, which is what users have.
DOUBLE = False


def check(y, result):
    known = exact(y)
    # Rounding of a sum of 2n rows in the precision at hand, beside the noise of the estimate.
    floor = 4 * np.finfo(result.q.dtype).eps * abs(known.log_evidence)
    below = known.log_evidence - result.elbo
    assert -5 * result.elbo_error - floor < below < NATS + 5 * result.elbo_error + floor
    g = np.asarray(result.q.of_globals.sample(jr.key(9), DRAWS), float)
    error = 5 / DRAWS**0.5
    assert np.all(np.abs(g.mean(axis=0) - known.mean) < (SHIFT + error) * known.std)
    assert np.all(np.abs(np.log(g.std(axis=0) / known.std)) < SHARE + error)


@pytest.mark.parametrize(("groups", "tau"), [(100, 0.7), (1000, 1.0)])
def test_a_normal_hierarchy_is_right(groups, tau):
    y = normal_groups(groups, tau=tau)
    result = qg.fit(normal_target(y), "hierarchical", key=jr.key(0))
    assert result.status == "converged"
    assert "given 2 global ones" in result.explain()
    check(y, result)


def test_a_normal_hierarchy_is_right_in_single_precision():
    with jax.enable_x64(DOUBLE):
        y = normal_groups(100, tau=0.5)
        result = qg.fit(normal_target(y), "hierarchical", key=jr.key(0))
        assert result.q.dtype == jnp.float32
        check(y, result)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [10_000, 100_000])
def test_a_large_normal_hierarchy_is_right(groups):
    with jax.enable_x64(DOUBLE):
        y = normal_groups(groups)
        check(y, qg.fit(normal_target(y), "hierarchical", key=jr.key(0)))


def test_an_arrowhead_is_the_best_gaussian_of_its_kind():
    """No better than the hierarchy, which holds it, and no worse than mean-field."""
    y = normal_groups(40)
    target = normal_target(y)
    found = qg.fit(target, "arrowhead", key=jr.key(0))
    assert found.status == "converged"
    below = exact(y).log_evidence - found.elbo
    simple = qg.fit(target, "mean-field", key=jr.key(0))
    assert found.elbo > simple.elbo
    full = qg.fit(target, "full-rank", key=jr.key(0))
    # The best full-rank Gaussian has these zeros, so that the two have the same ELBO.
    assert abs(found.elbo - full.elbo) < 0.15 + 5 * (found.elbo_error + full.elbo_error)
    assert 0 < below < 1.0


def test_a_target_without_structure_is_refused_by_name():
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(12, 12)))
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((matrix @ z) ** 2), dim=12)
    with pytest.raises(ValueError, match="no split of the coordinates"):
        qg.fit(target, "hierarchical", key=jr.key(0))
