"""Sample average approximation as a method: fixed draws, and what follows them."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.families import REGISTRY

MEAN = jnp.array([1.0, -2.0, 0.5])
STD = jnp.array([0.2, 1.0, 3.0])


@pytest.fixture(scope="module")
def gaussian():
    return qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(((z - MEAN) / STD) ** 2), dim=3)


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


def test_draws_that_a_sampler_cannot_make_are_refused_with_its_reason(gaussian):
    q = REGISTRY["mean-field"].init(3, key=jr.key(0))
    reason = qg.Antithetic().refuses(3, q.base, q.base_dim)
    assert reason is not None
    assert qg.Saa(sampler="antithetic", draws=3).refuses(gaussian, q, None) == reason
    assert qg.Saa(sampler="antithetic", draws=4).refuses(gaussian, q, None) is None


def test_minibatches_are_refused(gaussian):
    x = np.ones((10, 3))
    target = qg.Target(lambda z: -z @ z, lambda z, x: -((x @ z) ** 2), x, dim=3)
    with pytest.raises(ValueError, match="leave batch_size out"):
        qg.fit(target, method="saa", batch_size=2, key=jr.key(1))


@pytest.mark.turns(2)
@pytest.mark.parametrize("family", ["full-rank", "real-nvp-affine", "real-nvp"])
def test_every_family_ends_with_a_finite_answer(gaussian, family):
    result = qg.fit(gaussian, family, method=qg.Saa(polish_steps=100), key=jr.key(1))
    assert np.isfinite(result.elbo)
    assert isinstance(result.q, REGISTRY[family])
