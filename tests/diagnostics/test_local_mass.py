"""The Gaussian at a place that q leaves out, against closed forms."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from quietgrad import Target
from quietgrad.diagnostics.local_mass import Local, gaussian_around, mass_around
from quietgrad.diagnostics.metric import Metric
from quietgrad.diagnostics.settings import Diagnostics
from quietgrad.evaluation.points import Points
from quietgrad.families import MeanField

FLOAT = np.dtype(float)
CENTER = np.array([5.0, -2.0])
COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.5]])


def correlated():
    precision = jnp.asarray(np.linalg.inv(COVARIANCE))
    return Target.from_logdensity(lambda z: -0.5 * (z - CENTER) @ precision @ (z - CENTER), dim=2)


def narrow(std=1.0):
    return MeanField(jnp.zeros(1), jnp.log(jnp.full(1, std)))


@pytest.mark.parametrize("steps", [1, 12])
def test_one_step_finds_a_gaussian(steps):
    """Gradients are linear: exact up to rounding, from a root that is no symmetric matrix."""
    settings = dataclasses.replace(Diagnostics(), local_steps=steps)
    root = np.array([[1.0, 0.0], [1.2, 0.7]])
    place = CENTER + np.array([0.5, -0.3])
    found = gaussian_around(Points(correlated(), FLOAT), place, root, np.random.default_rng(0), settings)
    assert found is not None
    np.testing.assert_allclose(found[0], CENTER, rtol=1e-9)
    np.testing.assert_allclose(found[1] @ found[1].T, COVARIANCE, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 50])
def test_a_gaussian_has_its_own_draws_and_its_density(dim):
    """A squared distance is beyond dim + 4 sds in less than 1 % of draws; 20 sds away none is in."""
    rng = np.random.default_rng(1)
    root = np.eye(dim) + np.tril(rng.normal(size=(dim, dim))) / dim
    local = Local(rng.normal(size=dim), root, 0.0, 0.0)
    z = local.center + rng.standard_normal((200, dim)) @ root.T
    assert np.mean([local.has(each) for each in z]) > 0.95
    far = 20 * math.sqrt(dim) * root[:, 0]
    assert not local.has(local.center + far)
    exact = multivariate_normal(local.center, root @ root.T).logpdf(z)
    # Rounding of a squared distance of about dim, and of a linear system of condition below 1e4.
    np.testing.assert_allclose(local.log_prob(z), np.atleast_1d(exact), rtol=1e-9, atol=1e-9)


def test_what_q_leaves_out_of_a_mode_is_a_part_of_its_mass():
    """N(0, 1) and a q of half the width: p / q is above ten where 0.5 exp(1.5 z^2) is. The share of 512
    draws there has a standard error below that of independent ones."""
    target = Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=1)
    log_z = 0.5 * math.log(2 * math.pi)
    metric = Metric(np.zeros(1), np.ones(1))
    found = mass_around(
        Points(target, FLOAT), narrow(0.5), (log_z, 0.0), np.zeros(1), metric, np.random.default_rng(2)
    )
    assert found is not None
    assert Diagnostics().share_left == 10
    share = 2 * norm.sf(math.sqrt(math.log(20) / 1.5))
    assert math.exp(found.log_mass) == pytest.approx(share, abs=5 * math.sqrt(share / 512))


def test_where_weights_have_no_mean_bounds_are_compared():
    """A Cauchy density far away: the mass falls by as much as the ELBO rises, whatever the evidence.

    The tail of its weights has a k-hat of 0.8 at 512 draws, which must be above the limit here.
    """
    target = Target.from_logdensity(lambda z: -jnp.sum(jnp.log1p((z - 40.0) ** 2)), dim=1)
    metric = Metric(np.zeros(1), np.ones(1))
    settings = dataclasses.replace(Diagnostics(), no_mean=0.5)

    def found(log_z, elbo):
        local = mass_around(
            Points(target, FLOAT),
            narrow(),
            (log_z, elbo),
            np.full(1, 40.5),
            metric,
            np.random.default_rng(3),
            settings,
        )
        assert local is not None
        assert local.khat > settings.no_mean
        return local.log_mass

    plain = found(0.0, -1.0)
    assert found(0.0, -3.0) == pytest.approx(plain + 2.0, abs=1e-9)
    assert found(1.0, -1.0) == pytest.approx(plain, abs=1e-9)
