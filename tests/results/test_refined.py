"""Chains in the coordinates of a fit: against exact moments, on a funnel, and through every door."""

import dataclasses
import json
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad import LowRank, MeanField, Normal, Refine, Target, fit
from quietgrad.adapters.nuts import ENGINES, engine
from quietgrad.cli.commands.fit import fit_command
from quietgrad.diagnostics.coordinates import BaseCoordinates, coordinates_of
from quietgrad.diagnostics.draws import draw
from quietgrad.diagnostics.metric import metric_of
from quietgrad.evaluation.points import Points
from quietgrad.families import AbstractFamily
from quietgrad.families.bases import AbstractBase
from quietgrad.results.refined import refine

SHORT = Refine(warm_up=100, draws=200, block=100, effective=100.0)


class Funnel(AbstractFamily):
    """v = 3 e_0 and x_i = exp(v / 2) e_i: exactly Neal's funnel."""

    scale: jax.Array
    size: int
    base: AbstractBase = Normal()
    contained: ClassVar = ()

    @classmethod
    def init(cls, dim, *, key):
        del key
        return cls(jnp.asarray(3.0), dim)

    @property
    def dim(self):
        return self.size

    def transport(self, e):
        v = self.scale * e[0]
        return jnp.concatenate([v[None], jnp.exp(v / 2) * e[1:]])

    def transport_and_log_prob(self, e):
        v = self.scale * e[0]
        log_det = jnp.log(self.scale) + (self.size - 1) * v / 2
        return self.transport(e), jnp.sum(self.base.log_prob(e)) - log_det

    def transport_and_score(self, e):
        raise NotImplementedError

    def _log_prob(self, z):
        e = jnp.concatenate([z[:1] / self.scale, jnp.exp(-z[0] / 2) * z[1:]])
        return self.transport_and_log_prob(e)[1]


def funnel(dim):
    def log_density(z):
        v, x = z[0], z[1:]
        return -0.5 * (v / 3) ** 2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * (dim - 1) * v

    return Target.from_logdensity(log_density, dim)


def chains(target, q, *, settings=SHORT, sampler=None, seed=0, seconds=600.0):
    return refine(
        target,
        q,
        np.random.default_rng(seed),
        seconds=seconds,
        settings=settings,
        sampler=sampler,
        progress=False,
    )


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)])
def test_a_funnel_of_a_hundred_dimensions_in_the_coordinates_of_a_flow(dtype):
    """4 x 1000 draws: effective size above 1000 in every coordinate, no divergence, v ~ N(0, 9)."""
    q = Funnel(jnp.asarray(3.0, dtype), 100)
    found = chains(funnel(100), q, settings=Refine(warm_up=200, longer=1))
    figures = found.diagnostics
    assert found.z.shape == (4, 1000, 100)
    assert found.z.dtype == dtype
    assert figures.divergences == 0
    assert min(figures.effective_bulk, figures.effective_tail) > 1000
    assert figures.rhat < 1.02
    assert found.converged
    assert "base coordinates of Funnel" in str(found)
    v = np.asarray(found.z[..., 0]).ravel()
    assert abs(v.mean()) < 5 * 3 / math.sqrt(1000)
    assert abs(v.var() / 9 - 1) < 5 * math.sqrt(2 / 1000)


@pytest.mark.parametrize("family", ["flow", "low-rank", "student"])
def test_the_transformed_density_has_the_posterior_as_its_image(family, key):
    """log pi(e) - log q_0(e) = f(z) - log q(z); where T is invertible that is f plus log|det J|."""
    target = Target.from_logdensity(lambda z: -jnp.sum(jnp.cosh(z - 0.3)), 3)
    if family == "flow":
        q = Funnel(jnp.asarray(0.7), 3)
    elif family == "low-rank":
        q = LowRank.init(3, key=key, rank=2)
    else:
        q = MeanField.init(3, key=key)
    e = jr.normal(jr.fold_in(key, 1), (q.base_dim,))
    coordinates = BaseCoordinates(target, q)
    z = q.transport(e)
    np.testing.assert_allclose(coordinates.point(e), z)
    found = coordinates.log_density(e) - jnp.sum(q.base.log_prob(e))
    np.testing.assert_allclose(found, target.log_density(z) - q.log_prob(z), rtol=1e-9)
    if family == "flow":
        _, log_det = jnp.linalg.slogdet(jax.jacobian(q.transport)(e))
        np.testing.assert_allclose(coordinates.log_density(e), target.log_density(z) + log_det)


def correlated():
    covariance = np.array([[1.0, 0.95], [0.95, 1.0]])
    precision = jnp.asarray(np.linalg.inv(covariance))
    return Target.from_logdensity(lambda z: -0.5 * z @ precision @ z, 2), covariance


def test_a_mean_field_fit_moves_in_the_posterior_s_own_matrix():
    target, covariance = correlated()
    q = MeanField(jnp.zeros(2), jnp.log(jnp.full(2, 0.3)))
    drawn = draw(q, Points(target, q.dtype), np.random.default_rng(0), 500)
    coordinates = coordinates_of(target, q, metric_of(drawn))
    u = coordinates.of_draws(drawn, np.arange(4))
    np.testing.assert_allclose(jax.vmap(coordinates.point)(u), drawn.z[:4], rtol=1e-9)
    hessian = jax.hessian(coordinates.log_density)(jnp.zeros(2))
    np.testing.assert_allclose(hessian, -np.eye(2), atol=1e-6)


@pytest.mark.turns(2)
@pytest.mark.parametrize("sampler", list(ENGINES))
def test_every_sampler_finds_the_moments(sampler):
    pytest.importorskip(ENGINES[sampler][0])
    target, covariance = correlated()
    q = MeanField(jnp.full(2, 0.5), jnp.log(jnp.full(2, 0.3)))
    found = chains(target, q, sampler=sampler, settings=Refine(warm_up=200, draws=500))
    z = np.asarray(found.z).reshape(-1, 2)
    figures = found.diagnostics
    assert found.converged, str(found)
    assert figures.gradients >= z.shape[0]
    error = 1 / math.sqrt(min(figures.effective_bulk, figures.effective_tail))
    assert np.all(np.abs(z.mean(axis=0)) < 5 * error)
    assert np.all(np.abs(np.cov(z.T) - covariance) < 5 * math.sqrt(2) * error)


def test_chains_that_are_not_enough_go_on_and_say_so():
    """Two modes that no chain crosses between: R-hat stays high until the draws are used up."""
    target = Target.from_logdensity(
        lambda z: jnp.logaddexp(-0.5 * jnp.sum((z - 9) ** 2), -0.5 * jnp.sum((z + 9) ** 2)), 2
    )
    q = MeanField(jnp.zeros(2), jnp.log(jnp.full(2, 8.0)))
    # With 32 chains, all in one mode is a chance of 2^-31.
    settings = Refine(warm_up=50, draws=50, block=50, longer=3, chains=32)
    found = chains(target, q, settings=settings)
    assert 0 < np.count_nonzero(np.asarray(found.z[:, -1, 0]) > 0) < 32
    assert found.z.shape[1] == 150
    assert found.diagnostics.rhat > 1.5
    assert not found.converged
    assert str(found).endswith("not enough: give refine more seconds")
    assert not found.posterior(jr.key(0), 10).reliable


def test_the_time_ends_chains_after_their_first_block():
    target, _ = correlated()
    q = MeanField(jnp.zeros(2), jnp.zeros(2))
    found = chains(target, q, settings=dataclasses.replace(SHORT, effective=1e9), seconds=1e-3)
    assert found.z.shape[1] == SHORT.block


def test_a_fit_refined_is_used_like_a_result(key):
    target, _ = correlated()
    result = fit(target, "mean-field", refine=120, progress=False, key=key)
    found = result.refined
    assert found is not None
    assert str(found) in result.explain()
    every = np.asarray(found.z).reshape(-1, 2)
    # All of them, each once, in another order.
    drawn = np.asarray(result.sample(key, len(every)))
    assert not np.array_equal(drawn, every)
    np.testing.assert_array_equal(*(x[np.lexsort(x.T)] for x in (drawn, every)))
    tree = result.to_arviz()
    assert dict(tree["posterior"].sizes)["chain"] == 4
    assert tree["posterior"].attrs["kind"] == str(found)
    assert not tree["sample_stats"]["diverging"].any()
    assert {"r_hat", "ess_bulk"} <= set(result.summary().columns)
    assert found.posterior(key, 10).reliable == found.converged
    assert result.for_nuts(chains=3).start.shape == (3, 2)


def test_bad_arguments_are_refused_before_the_fit(key, uninstall):
    target, _ = correlated()
    with pytest.raises(ValueError, match="positive number of seconds; got -1"):
        fit(target, refine=-1, key=key)
    with pytest.raises(ValueError, match="no sampler 'stan'; there are numpyro, blackjax"):
        engine("stan")
    for package, _ in ENGINES.values():
        uninstall(package)
        uninstall(f"quietgrad.adapters.nuts.with_{package}")
    with pytest.raises(ImportError, match=r"quietgrad\[numpyro\].*quietgrad\[peers\]"):
        fit(target, refine=True, key=key)


@pytest.mark.slow
def test_the_command_writes_draws_of_the_chains(tmp_path, capsys):
    (tmp_path / "model.py").write_text(
        "import jax.numpy as jnp\nimport quietgrad as qg\n"
        "target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)\n"
    )
    code = fit_command(
        f"{tmp_path / 'model.py'}:target",
        method="auto",
        family="mean-field",
        seed=0,
        refine=True,
        diagnose=False,
        out=tmp_path / "out",
    )
    assert code == 0
    assert "refined: 4,000 posterior draws of 4 chains" in capsys.readouterr().out
    assert "those of chains" in (tmp_path / "out" / "verdict.txt").read_text()
    assert "refine=True" in (tmp_path / "out" / "repeat.py").read_text()
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["refined"]["rhat"] < 1.02
