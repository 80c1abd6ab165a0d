"""The semi-implicit family: bounds of its density, starts, and fits from the call to the draws."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean
from scipy.stats import multivariate_normal
from subjects import target_2d

import quietgrad as qg
from quietgrad.estimators import Ksivi, SemiImplicitPathwise, Sivi
from quietgrad.families import FullRank, MeanField, ParticleMixture, SemiImplicit
from quietgrad.families.semi_implicit import Proposal
from quietgrad.families.semi_implicit.proposal import Linearised


def bent(dim=2, mixing=1, scale=0.5, **settings):
    """A member whose network matters."""
    q = SemiImplicit.init(dim, key=jr.key(0), mixing=mixing, widths=(8,), **settings)
    out = scale * np.random.default_rng(1).normal(size=q.generator.out.shape)
    return eqx.tree_at(lambda q: q.generator.out, q, jnp.asarray(out, q.dtype))


def log_q_by_quadrature(q, z):
    """E_eps q(z | eps) for a one-dimensional eps on a fine grid."""
    grid = jnp.linspace(-8, 8, 8001)[:, None]

    def one(z):
        w = q.gaussian.inverse(z)
        log_joint = jax.vmap(lambda eps: q.generator.log_joint(w, eps))(grid)
        width = math.log(16 / 8000)
        return jax.nn.logsumexp(log_joint) + width - jnp.sum(q.gaussian.log_diagonal())

    return eqx.filter_jit(jax.lax.map)(one, z)


@eqx.filter_jit
def bounds(q, e):
    return jax.vmap(q.bounds)(e)


@eqx.filter_jit
def carried(q, e):
    return jax.vmap(q.transport_and_log_prob)(e)


@eqx.filter_jit
def scored(q, e):
    return jax.vmap(q.transport_and_score)(e)


@eqx.filter_jit
def slopes_of(q, z):
    return jax.vmap(jax.grad(q.log_prob))(z)


@pytest.mark.turns(3, first=2)
@pytest.mark.parametrize("prior_share", [0.0, 0.25, 1.0])
def test_bounds_hold_the_log_density_between_them(prior_share):
    """In the mean, by a z-test; and weights that include eps have no bias as importance weights."""
    q = bent(proposal=Proposal(nodes=4, prior_share=prior_share))
    e = jr.normal(jr.key(2), (20_000, q.base_dim))
    lower, upper = bounds(q, e)
    z, log_q = carried(q, e)
    np.testing.assert_array_equal(log_q, upper)
    exact = np.asarray(log_q_by_quadrature(q, z))
    below, above = exact - np.asarray(lower), np.asarray(upper) - exact
    for gap in (below, above):
        assert np.mean(gap) > -5 * np.std(gap) / math.sqrt(gap.size) - 1e-6
    # q / q^ has mean one under the draws, exactly: the ELBO and corrected draws rest on it.
    assert_mean(np.exp(-above)[:, None], np.ones(1))


def test_a_normal_of_known_precision_places_draws_where_it_has_its_density():
    """Its root whitens what it places, and the density is that of SciPy."""
    rng = np.random.default_rng(0)
    root, mode = np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3), rng.normal(size=3)
    around = Linearised(*map(jnp.asarray, (mode, root, np.linalg.inv(root))))
    n = rng.normal(size=(5, 3))
    eps = np.asarray(around.place(jnp.asarray(n)))
    np.testing.assert_allclose((eps - mode) @ root, n, rtol=0, atol=1e-12)
    exact = multivariate_normal(mode, np.linalg.inv(root @ root.T)).logpdf(eps)
    np.testing.assert_allclose(around.log_prob(jnp.asarray(eps)), exact, rtol=1e-12)


@pytest.mark.slow
def test_more_nodes_close_the_gap():
    gaps = []
    for nodes in (2, 8, 64):
        q = bent(proposal=Proposal(nodes=nodes))
        e = jr.normal(jr.key(3), (2000, q.base_dim))
        lower, upper = bounds(q, e)
        gaps.append(float(jnp.mean(upper - lower)))
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2] > 0


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_linear_generator_has_equal_bounds(dtype):
    """The proposal is then q(eps | w) itself."""
    q = SemiImplicit.init(5, key=jr.key(0), mixing=3, proposal=Proposal(nodes=3, prior_share=0.0))
    q = jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, q)
    e = jr.normal(jr.key(4), (50, q.base_dim), dtype)
    lower, upper = bounds(q, e)
    z = np.asarray(carried(q, e)[0])
    exact = -0.5 * np.sum(z**2 + math.log(2 * math.pi), axis=1)
    tolerance = 500 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(lower, exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(upper, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.turns(2)
@pytest.mark.parametrize("mixing", [1, 3, 7])
def test_the_start_is_the_gaussian(mixing):
    """Whatever the dimension of eps, and from a trained member as well."""
    other = FullRank.init(3, key=jr.key(5))
    other = eqx.tree_at(lambda q: q.packed, other, other.packed + 0.3)
    q = bent(3, mixing, proposal=Proposal(nodes=16, prior_share=0.0)).start_from(other, key=jr.key(6))
    e = jr.normal(jr.key(7), (20, q.base_dim))
    z, log_q, score = scored(q, e)
    np.testing.assert_allclose(log_q, other.log_prob(z), rtol=1e-8)
    np.testing.assert_allclose(carried(q, e)[1], log_q, rtol=1e-10)
    exact = slopes_of(other, z)
    # 17 nodes: the score's spread over eps given z is below one in these coordinates.
    assert float(jnp.mean((score - exact) ** 2)) < 0.2 * float(jnp.mean(exact**2))


def test_particles_have_an_exact_density():
    q = ParticleMixture.init(2, key=jr.key(8), particles=5, widths=(8,))
    q = q.start_from(MeanField.init(2, key=jr.key(9)), key=jr.key(10))
    out = 0.2 * np.random.default_rng(1).normal(size=q.generator.out.shape)
    q = eqx.tree_at(lambda q: q.generator.out, q, jnp.asarray(out))
    axis = np.linspace(-12, 12, 401)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2))
    mass = np.sum(np.exp(eqx.filter_jit(lambda q, z: q.log_prob(z))(q, grid))) * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(mass, 1.0, rtol=1e-6)
    e = jr.normal(jr.key(11), (6, q.base_dim))
    z, log_q, score = scored(q, e)
    np.testing.assert_allclose(log_q, q.log_prob(z), rtol=1e-9)
    np.testing.assert_allclose(score, slopes_of(q, z), rtol=1e-8)


def test_particles_are_trained_as_the_family_whose_network_they_share():
    q = ParticleMixture.init(2, key=jr.key(8), particles=5, widths=(8,))
    assert q.advice == SemiImplicit(generator=q.generator, gaussian=q.gaussian).advice


def banana(z):
    return -0.5 * (z[0] ** 2 / 4 + (z[1] - 0.5 * z[0] ** 2 + 1) ** 2 / 0.3)


# log of 2 pi times the product of the scales.
LOG_Z = math.log(2 * math.pi * 2 * math.sqrt(0.3))


@pytest.mark.slow
def test_a_fit_gains_on_the_gaussian_and_stays_below_the_evidence():
    fitted, full = (
        qg.fit(qg.Target(banana, dim=2), name, key=jr.key(0)) for name in ("semi-implicit", "full-rank")
    )
    assert fitted.elbo - full.elbo > 5 * math.hypot(fitted.elbo_error, full.elbo_error)
    assert fitted.elbo < LOG_Z + 5 * fitted.elbo_error


def test_everything_works_on_the_result():
    q = SemiImplicit.init(2, key=jr.key(3), widths=(16,))
    method = qg.Sgd(estimator="uivi-stein", steps=300)
    fitted = qg.fit(qg.Target(banana, dim=2), q, method=method, key=jr.key(0))
    assert fitted.sample(jr.key(1), 7).shape == (7, 2)
    assert fitted.diagnose().verdict is not None
    tree = fitted.to_arviz(50)
    assert np.isfinite(tree["sample_stats"]["log_q"]).all()
    corrected = fitted.posterior(jr.key(2), 200)
    assert np.isfinite(np.asarray(corrected.points)).all()


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", ["sivi", "uivi", "uivi-stein", "ksivi"])
def test_estimators_lead_upwards(name):
    q = SemiImplicit.init(2, key=jr.key(3), widths=(16,))
    target = qg.Target(banana, dim=2)
    start = float(qg.elbo(target, q, draws=2000, key=jr.key(4)))
    result = qg.fit(target, q, method=qg.Sgd(estimator=name, steps=300), key=jr.key(5))
    assert result.elbo > start


@pytest.mark.parametrize(
    "made", [SemiImplicitPathwise(), Sivi(), Ksivi()], ids=lambda e: type(e).__name__
)
def test_estimators_refuse_other_families(made):
    with pytest.raises(ValueError, match="semi-implicit"):
        made.init(target_2d("curved"), MeanField.init(2, key=jr.key(0)))


def test_ksivi_s_gradient_is_that_of_the_literal_sum_over_pairs(key):
    """Conditional scores by autodiff, and the median of squared distances as a width that is held."""
    q, target, draws = bent(mixing=3), qg.Target(banana, dim=2), 4
    made = Ksivi(draws=draws)
    estimate, _ = eqx.filter_jit(made.step)(target, q, made.init(target, q), key=key)
    e = q.base.sample((draws, q.base_dim), q.dtype, key=key)
    pairs = [(i, j) for i in range(draws) for j in range(draws) if i != j]

    @eqx.filter_jit
    @eqx.filter_grad
    def literal(moved):
        w, eps = jax.vmap(moved.whitened)(e), e[:, q.dim :]
        slope = jax.vmap(jax.grad(lambda w: target.log_density(q.color(w))))(w)
        gap = slope - jax.vmap(jax.grad(moved.generator.log_conditional))(w, eps)
        square = jnp.stack([jnp.sum((w[i] - w[j]) ** 2) for i, j in pairs])
        kernel = jnp.exp(-square / jax.lax.stop_gradient(jnp.median(square)))
        return sum(k * gap[i] @ gap[j] for k, (i, j) in zip(kernel, pairs, strict=True)) / len(pairs)

    expected = literal(q)
    for ours, theirs in zip(jax.tree.leaves(estimate.grad), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, -theirs, rtol=1e-8, atol=1e-8)


def test_the_score_function_refuses_an_estimated_density():
    with pytest.raises(ValueError, match="only estimates"):
        qg.estimator("score").init(target_2d("curved"), SemiImplicit.init(2, key=jr.key(0)))


@pytest.mark.slow
def test_a_checkpoint_holds_it(tmp_path):
    def once():
        method = qg.Sgd(estimator="uivi-stein", steps=40)
        q = SemiImplicit.init(2, key=jr.key(6), widths=(8,))
        return qg.fit(
            qg.Target(banana, dim=2), q, method=method, checkpoint=tmp_path / "fit", key=jr.key(7)
        )

    first, again = once(), once()
    assert eqx.tree_equal(first.q, again.q)
    assert dataclasses.is_dataclass(again.q.proposal)
