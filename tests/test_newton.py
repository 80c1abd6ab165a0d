"""Newton steps: the closed-form ELBO of a quadratic, Gaussians found exactly, and whom they suit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, assert_same
from subjects import family

import quietgrad as qg
from quietgrad.metrics import elbo_terms
from quietgrad.results import History
from quietgrad.saa import newton as room
from quietgrad.saa.newton import newton, quadratic_elbo, suits

DIM = 4
FAMILIES = {qg.MeanField: False, qg.LowRank: True, qg.FullRank: True, qg.AffineRealNVP: False}


def precision(key, rank):
    """That of a factor-plus-diagonal Gaussian with strong correlations."""
    key_factor, key_diagonal = jr.split(key)
    factor = 2 * jr.normal(key_factor, (DIM, rank))
    return jnp.linalg.inv(factor @ factor.T + jnp.diag(jnp.exp(jr.normal(key_diagonal, (DIM,)))))


def gaussian(inverse, mean):
    """A normalised Gaussian target: its best ELBO is zero."""
    constant = 0.5 * (jnp.linalg.slogdet(inverse)[1] - DIM * jnp.log(2 * jnp.pi))
    return qg.Target.from_logdensity(
        lambda z: constant - 0.5 * (z - mean) @ inverse @ (z - mean), dim=DIM
    )


@pytest.mark.parametrize("name", ["mean-field", "low-rank", "full-rank"])
def test_elbo_of_a_quadratic_is_the_monte_carlo_one(name, key):
    """The quadratic is centred elsewhere than q, so that every term counts."""
    keys = jr.split(key, 4)
    q, center, gradient = family(name, DIM), *(jr.normal(k, (DIM,)) for k in keys[:2])
    root = jr.normal(keys[2], (DIM, DIM))
    hessian = -root @ root.T

    def quadratic(z):
        return gradient @ (z - center) + 0.5 * (z - center) @ hessian @ (z - center)

    target = qg.Target.from_logdensity(quadratic, dim=DIM)
    e = q.base.sample((20_000, q.base_dim), q.dtype, key=keys[3])
    exact = quadratic_elbo(q, center, gradient, hessian)
    assert_mean(elbo_terms(target, q, e)[:, None], np.asarray(exact)[None])


@pytest.mark.parametrize("cls", [qg.LowRank, qg.FullRank])
def test_a_gaussian_inside_the_family_is_found(cls, key):
    keys = jr.split(key, 3)
    mean = jr.normal(keys[0], (DIM,))
    target, history = gaussian(precision(keys[1], 1), mean), History()
    q = cls.init(DIM, key=keys[2], **({"rank": 1} if cls is qg.LowRank else {}))
    found = newton(target, q, None, history, key=jr.fold_in(key, 1))
    # Gradient and Hessian of a Gaussian are exact at any draws, so only the solver's error is left: a
    # thousandth of a nat is what float64 L-BFGS leaves after so many iterations, with room.
    e = found.q.base.sample((2000, found.q.base_dim), found.q.dtype, key=keys[2])
    assert abs(float(jnp.mean(elbo_terms(target, found.q, e)))) < 1e-3
    np.testing.assert_allclose(found.q.mean(), mean, atol=1e-2)
    assert np.all(np.diff(history["elbo"]) >= 0)
    np.testing.assert_array_equal(history.arrays()["step"], np.arange(1, found.steps + 1))


def test_the_fixed_point_is_stationary_for_the_elbo(key):
    """On a target that is no Gaussian, the ELBO's own gradient vanishes where the iteration ends."""

    def bent(z):
        return -jnp.sum(jnp.exp(0.7 * z)) + jnp.sum(z) - 0.3 * jnp.sum(z) ** 2

    target = qg.Target.from_logdensity(bent, dim=2)
    q = qg.FullRank.init(2, key=jr.key(0))
    found = newton(target, q, None, History(), key=key)
    more = newton(target, found.q, None, History(), key=jr.fold_in(key, 1))
    e = q.base.sample((4000, 2), q.dtype, key=jr.fold_in(key, 2))
    gain = elbo_terms(target, more.q, e) - elbo_terms(target, found.q, e)
    assert float(jnp.mean(gain)) < room.GAIN

    def elbo(loc):
        return jnp.mean(elbo_terms(target, qg.FullRank(loc=loc, packed=more.q.packed), e))

    def norm(loc):
        return float(jnp.linalg.norm(jax.grad(elbo)(loc)))

    # Against the gradient one standard deviation away, which is of order one.
    scale = jnp.sqrt(more.q.variance())
    assert norm(more.q.loc) < 0.15 * norm(more.q.loc + scale)


def test_draws_in_parts_are_the_draws_at_once(monkeypatch, key):
    x = jr.normal(key, (50, DIM))
    target = qg.Target(lambda z: -0.5 * jnp.sum(z**2), lambda z, x: -jnp.exp(0.3 * x @ z), x, dim=DIM)
    q = qg.FullRank.init(DIM, key=jr.key(0))
    e = q.base.sample((12, DIM), q.dtype, key=key)
    whole = room._expansion(target, q, e)
    monkeypatch.setattr(room, "LIKELIHOODS", 5 * 50)
    assert room._at_once(target, 12) == 4
    assert_same(room._expansion(target, q, e), whole, operations=100)
    literal = jnp.mean(jax.vmap(jax.hessian(target.log_density))(jax.vmap(q.transport)(e)), axis=0)
    assert_same(whole[1], literal, operations=100)


def test_iterates_that_lose_are_not_kept(monkeypatch, key):
    """The first step gains, the next ones lead far away."""
    target, history, real = gaussian(jnp.eye(DIM), jnp.ones(DIM)), History(), room._iterate

    def astray(target, q, sums, count, iterations, key):
        q, sums = real(target, q, sums, count, iterations, key)
        return (eqx.tree_at(lambda q: q.loc, q, q.loc + 100.0) if count > 1 else q), sums

    monkeypatch.setattr(room, "_iterate", astray)
    found = newton(target, qg.FullRank.init(DIM, key=jr.key(0)), None, history, key=key)
    assert found.steps == 2
    assert np.all(np.diff(history["elbo"]) >= 0)
    assert jnp.all(jnp.abs(found.q.loc) < 50)


@jax.custom_vjp
def elsewhere(z):
    """A log density computed outside of JAX, which gives its gradient but no Hessian."""
    shape = jax.ShapeDtypeStruct((), z.dtype)
    return jax.pure_callback(lambda z: -0.5 * np.sum(z**2), shape, z, vmap_method="sequential")


def _gradient(z, c):
    shape = jax.ShapeDtypeStruct(z.shape, z.dtype)
    return (c * jax.pure_callback(lambda z: -np.asarray(z), shape, z, vmap_method="sequential"),)


elsewhere.defvjp(lambda z: (elsewhere(z), z), _gradient)


def test_a_target_without_hessian_is_fitted_without_newton_steps():
    target = qg.Target.from_logdensity(elsewhere, dim=DIM)
    q = qg.FullRank.init(DIM, key=jr.key(0))
    assert not suits(target, q)
    result = qg.fit(target, q, method="auto", steps=200, key=jr.key(1))
    assert "newton" not in [d.kind for d in result.decisions]
    assert np.isfinite(result.elbo)


def test_whom_they_suit(monkeypatch):
    target = gaussian(jnp.eye(DIM), jnp.zeros(DIM))
    suited = {cls: suits(target, cls.init(DIM, key=jr.key(0))) for cls in FAMILIES}
    assert suited == FAMILIES
    q = qg.LowRank.init(DIM, key=jr.key(0))
    heavy = qg.FullRank.init(DIM, key=jr.key(0), base=qg.StudentT(df=2.0))
    assert not suits(target, heavy)
    monkeypatch.setattr(room, "MOST_DIM", DIM - 1)
    assert not suits(target, q)
