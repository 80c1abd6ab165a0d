"""Results as ArviZ has them: groups, labels, summaries and leave-one-out, for all kinds of targets."""

import io
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pymc
import pytest
import xarray
from arviz_stats.loo import loo as leave_one_out
from numpyro_models import CASES, GROUP, LABEL, X, Y, varying_slopes

import quietgrad as qg
from quietgrad.adapters import arviz as adapter


def plain(example=None):
    def log_likelihood(z, data):
        z = z if example is None else z["w"]
        logit = data["x"] @ z
        return data["y"] * logit - jnp.logaddexp(logit, 0.0)

    def log_prior(z):
        z = z if example is None else z["w"]
        return -0.5 * z @ z

    data = {"x": X, "y": LABEL.astype(float)}
    if example is None:
        return qg.Target(log_prior, log_likelihood, data, dim=3)
    return qg.Target(log_prior, log_likelihood, data, example=example)


def loo(tree):
    with warnings.catch_warnings():
        # Twelve rows and four parameters: ArviZ warns of rows that matter much.
        warnings.simplefilter("ignore", UserWarning)
        return leave_one_out(tree)


def test_numpyro_model_comes_back_with_its_labels(key, tmp_path):
    target = qg.Target.from_numpyro(varying_slopes, GROUP, X[:, 0], Y, 4)
    result = qg.fit(target, method="saa", key=key)
    tree = result.to_arviz(200)
    assert tree["posterior"]["slope"].dims == ("chain", "draw", "groups", "slope_dim_1")
    assert tree["posterior"]["noise"].shape == (1, 200)
    np.testing.assert_array_equal(tree["observed_data"]["y"], Y)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "data")
    assert np.isfinite(loo(tree).elpd)
    table = result.summary(200)
    assert {"std[0]", "slope[3, 1]", "noise"} <= set(table.index)
    tree.to_netcdf(tmp_path / "fit.nc")
    xarray.testing.assert_equal(
        xarray.open_datatree(tmp_path / "fit.nc")["posterior"].ds, tree["posterior"].ds
    )


def test_log_weights_are_those_of_the_draws(key):
    """The mean of f - log q over draws is the ELBO, and lp and log_q are its parts."""
    result = qg.fit(plain(), method="saa", key=key)
    stats = result.to_arviz(4000)["sample_stats"]
    weight = np.asarray(stats["log_weight"])
    np.testing.assert_allclose(weight, stats["lp"] - stats["log_q"])
    error = np.hypot(result.elbo_error, weight.std() / np.sqrt(weight.size))
    assert abs(weight.mean() - result.elbo) < 5 * error


@pytest.mark.parametrize("example", [None, {"w": np.zeros(3)}], ids=["vector", "pytree"])
def test_plain_target_has_rows(example, key):
    result = qg.fit(plain(example), method="saa", key=key)
    tree = result.to_arviz(300)
    name = "z" if example is None else "w"
    assert tree["posterior"][name].shape == (1, 300, 3)
    assert tree["log_likelihood"]["data"].dims == ("chain", "draw", "row")
    assert set(tree["observed_data"].data_vars) == {"x", "y"}
    assert np.isfinite(loo(tree).elpd)
    mean = np.asarray(tree["posterior"][name])[0].mean(axis=0)
    np.testing.assert_allclose(result.summary(300)["mean"].astype(float), mean, atol=5.1e-3)


def test_a_density_without_data_has_neither_rows_nor_likelihood(key):
    result = qg.fit(qg.Target.from_logdensity(lambda z: -z @ z, 2), method="saa", key=key)
    assert set(result.to_arviz(10).children) == {"posterior", "sample_stats"}


def test_sites_that_are_summed_out_have_no_pointwise_likelihood(key):
    case = CASES["enumerated-mixture"]
    result = qg.fit(qg.Target.from_numpyro(case.model, *case.args), method="saa", key=key)
    tree = result.to_arviz(10)
    assert "log_likelihood" not in tree.children
    np.testing.assert_array_equal(tree["observed_data"]["y"], Y)


def pymc_model():
    with pymc.Model(coords={"coef": ["a", "b", "c"]}) as model:
        w = pymc.Normal("w", 0.0, 1.0, dims="coef")
        pymc.Bernoulli("y", logit_p=np.asarray(X) @ w, observed=np.asarray(LABEL))
    return qg.Target.from_pymc(model)


def numpyro_model():
    return qg.Target.from_numpyro(varying_slopes, GROUP, X[:, 0], Y, 4)


@pytest.mark.turns(2)
@pytest.mark.parametrize("make", [numpyro_model, pymc_model, plain])
def test_summary_plot_and_leave_one_out_of_every_kind(make, key):
    """What the ecosystem does with a result: a table, a figure, and elpd by leave-one-out."""
    result = qg.fit(make(), method="saa", key=key)
    tree = result.to_arviz(400)
    table = adapter.summary(tree)
    assert {"mean", "sd"} <= set(table.columns)
    numbers = sum(variable[0, 0].size for variable in tree["posterior"].data_vars.values())
    assert len(table) == numbers
    assert np.isfinite(loo(tree).elpd)
    figure, out = adapter.plot(tree, most=5), io.BytesIO()
    figure.savefig(out, format="png")
    assert out.getvalue().startswith(b"\x89PNG")
    titles = [axes.get_title() for axes in figure.get_axes()]
    assert len(titles) == min(5, numbers)
    names = [str(name) for name in tree["posterior"].data_vars]
    assert all(any(title.startswith(name) for name in names) for title in titles)


def test_names_with_slashes_can_be_stored(key, tmp_path):
    """NumPyro's scopes name sites block/site, which a tree of groups would take for a path."""

    def model():
        with numpyro.handlers.scope(prefix="block"):
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=jnp.ones(3))

    result = qg.fit(qg.Target.from_numpyro(model), method=qg.Sgd("quiet", steps=2), key=key)
    tree = result.to_arviz(10)
    assert set(tree["posterior"].data_vars) == {"block.mean"}
    assert set(tree["observed_data"].data_vars) == {"block.y"}
    tree.to_netcdf(tmp_path / "fit.nc")


def test_labels_can_be_given(key):
    """NumPyro's plates have no labels, and its deterministic sites no axes."""
    target = numpyro_model()
    q = qg.MeanField.init(target.dim, key=key)
    groups = ["a", "b", "c", "d"]
    tree = adapter.to_arviz(
        target, q, key, 5, coords={"groups": groups}, dims={"slope": ["groups", "term"]}
    )
    slope = tree["posterior"]["slope"]
    assert slope.dims == ("chain", "draw", "groups", "term")
    assert list(slope["groups"].values) == groups
    assert "slope[b, 1]" in adapter.summary(tree).index
    for labels, words in (
        ({"coords": {"group": groups}}, "coords has 'group'; there are.*groups"),
        ({"coords": {"groups": groups[1:]}}, "3 labels for 'groups', which has length 4"),
        ({"dims": {"slop": ["a"]}}, "dims has 'slop'; there are"),
        ({"dims": {"slope": ["a"]}}, r"1 axes of 'slope', which has shape \(4, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            adapter.to_arviz(target, q, key, 5, **labels)


def test_corrected_draws_have_the_posteriors_moments(key):
    """q is a sixth of an sd off and a little wide, which importance weights mend."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), 2)
    start = qg.MeanField(jnp.full(2, 1 / 6), jnp.full(2, 0.2))
    result = qg.fit(target, start, method=qg.Sgd(steps=1, optimizer=optax.sgd(0.0)), key=key)
    tree = result.to_arviz(4000, corrected=True)
    draws = np.asarray(tree["posterior"]["z"])[0]
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=5 / np.sqrt(2000))
    assert set(tree["sample_stats"].data_vars) == {"lp"}
    assert "importance-corrected" in tree["posterior"].attrs["kind"]
    assert tree["posterior"].attrs["kind"] != result.to_arviz(10)["posterior"].attrs["kind"]
    assert abs(float(result.summary(4000, corrected=True)["mean"].astype(float).iloc[0])) < 0.12
