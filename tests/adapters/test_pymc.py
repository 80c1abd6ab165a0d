"""Targets of PyMC models have PyMC's own density, names, dims and coords."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
from arviz_stats.loo import loo as leave_one_out

import quietgrad as qg
from quietgrad.adapters.arviz import to_arviz

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
NOISE = np.random.default_rng(0)
X, Y = NOISE.normal(size=(12, 3)), NOISE.normal(size=12)


def regression():
    coords = {"row": np.arange(12), "input": ["age", "size", "cost"]}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", X, dims=("row", "input"))
        w = pm.Normal("w", 0, 2, dims="input")
        logits = pm.Deterministic("logits", x @ w, dims="row")
        pm.Bernoulli("y", logit_p=logits, observed=(Y > 0).astype(int), dims="row")
    return model


def hierarchical():
    with pm.Model(coords={"group": ["a", "b", "c", "d"]}) as model:
        mean = pm.Normal("mean", 0, 5)
        std = pm.HalfCauchy("std", 5)
        theta = pm.Normal("theta", mean, std, dims="group")
        pm.Normal("y", theta[np.arange(12) % 4], 1.0, observed=Y)
    return model


def transforms():
    with pm.Model(coords={"part": ["low", "middle", "high"], "grade": [10, 20, 30]}) as model:
        weight = pm.Dirichlet("weight", np.ones(3), dims="part")
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        low = pm.Uniform("low", -2, 1)
        ordered = pm.distributions.transforms.ordered
        cut = pm.Normal("cut", 0, 1, dims="grade", transform=ordered)
        pm.Potential("pull", -((cut[0] - low) ** 2) + pm.math.log(weight[0]))
        pm.MvNormal("y", np.zeros(2), chol=chol, observed=X[:, :2])
    return model


def without_data():
    with pm.Model(coords={"year": [2024, 2025], "site": ["a", "b", "c"]}) as model:
        pm.Gamma("rate", 2.0, 1.0, dims=("year", "site"))
    return model


MODELS = {f.__name__: f for f in (regression, hierarchical, transforms, without_data)}
SHAPES = {
    "regression": {"w": (3,), "logits": (12,)},
    "hierarchical": {"mean": (), "std": (), "theta": (4,)},
    "transforms": {
        "weight": (3,),
        "chol": (3,),
        "chol_corr": (2, 2),
        "chol_stds": (2,),
        "low": (),
        "cut": (3,),
    },
    "without_data": {"rate": (2, 3)},
}
# Named axes of what a model has, beside chain and draw, and their labels; other axes are numbered.
DIMS = {
    "regression": {"w": ["input"], "logits": ["row"], "y": ["row"]},
    "hierarchical": {"theta": ["group"]},
    "transforms": {"weight": ["part"], "cut": ["grade"]},
    "without_data": {"rate": ["year", "site"]},
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", MODELS)
def test_log_density_and_variables_are_pymcs(name):
    model = MODELS[name]()
    target = qg.Target.from_pymc(model)
    z = jnp.asarray(0.5 * np.random.default_rng(1).normal(size=target.dim))
    point = {name: np.asarray(x) for name, x in target.point(z).items()}
    own = model.compile_logp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(eqx.filter_jit(target.log_density)(z), own, rtol=1e-6)
    variables = eqx.filter_jit(target.constrain)(z)
    assert {k: v.shape for k, v in variables.items()} == SHAPES[name]
    outputs = [v for v in model.unobserved_value_vars if v.name in variables]
    expected = model.compile_fn(outputs, inputs=model.value_vars, mode="FAST_COMPILE")(point)
    for variable, value in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(variables[variable.name], value, rtol=1e-6)


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", MODELS)
def test_names_dims_coords_and_shapes_come_back(name, key):
    """At a q that was not fitted: labels do not depend on it."""
    model = MODELS[name]()
    target = qg.Target.from_pymc(model)
    q = qg.MeanField.init(target.dim, key=key)
    tree = to_arviz(target, q, key, 7)
    posterior = tree["posterior"]
    assert {k: v.shape[2:] for k, v in posterior.data_vars.items()} == SHAPES[name]
    for variable, axes in DIMS[name].items():
        groups = [tree[group] for group in ("posterior", "log_likelihood") if group in tree.children]
        (found,) = [group[variable] for group in groups if variable in group]
        assert found.dims == ("chain", "draw", *axes)
        for axis in axes:
            assert list(found[axis].values) == list(model.coords[axis])
    for variable in model.observed_RVs:
        observed = np.asarray(model.rvs_to_values[variable].data)
        np.testing.assert_array_equal(tree["observed_data"][variable.name], observed)


def test_a_fit_is_summarised_and_predicts_in_the_models_names(key):
    result = qg.fit(qg.Target.from_pymc(regression()), method="saa", key=key)
    assert "w[age]" in result.summary(100).index
    assert np.isfinite(leave_one_out(result.to_arviz(1000)).elpd)
    predicted = result.predictive(key, draws=20)
    assert predicted["y"].shape == (20, 12)
    with pytest.raises(ValueError, match="pymc.set_data"):
        result.predictive(key, X)


def test_initial_values_do_not_stand_in_the_way_of_predictions(key):
    """PyMC freezes no model that has them; ordered means need them."""
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        means = pm.Normal("means", 0, 3, shape=2, transform=ordered, initval=[-1.0, 1.0])
        pm.NormalMixture("y", [0.5, 0.5], means, 1.0, observed=[-2.0, -1.5, 1.0, 2.0])
    result = qg.fit(qg.Target.from_pymc(model), method=qg.Sgd(steps=5), progress=False, key=key)
    assert result.predictive(key, draws=3)["y"].shape == (3, 4)
    np.testing.assert_array_equal(model.rvs_to_initial_values[model["means"]], [-1.0, 1.0])


def test_predictions_come_from_the_draws_and_follow_new_data(key):
    """Not from the prior of a variable with dims, which PyMC takes for one that may have changed."""
    with pm.Model(coords={"side": ["left", "right"]}) as model:
        x = pm.Data("x", np.ones(3))
        level = pm.Normal("level", 0, 1, dims="side")
        pm.Normal("y", level[0] * x + 0 * level[1], 0.01, observed=np.full(3, 2.0))
    result = qg.fit(qg.Target.from_pymc(model), method="saa", key=key)
    for factor in (1.0, 3.0):
        with model:
            pm.set_data({"x": np.full(3, factor)})
        drawn = result.predictive(key, draws=50)["y"]
        # The posterior of the level is 2 ± 0.006; its prior has sd 1.
        np.testing.assert_allclose(drawn, 2.0 * factor, atol=0.2)


def test_new_data_need_no_compilation(key):
    with regression() as model:
        # A number that no other model has: programs are shared with models of the same density.
        pm.Potential("own", -0.0123 * (model.free_RVs[0] ** 2).sum())
    first = qg.fit(qg.Target.from_pymc(model), method="saa", key=key)
    with model:
        pm.set_data({"x": -X})
    second = qg.fit(qg.Target.from_pymc(model), method="saa", key=key)
    assert first.programs > 0
    assert second.programs == 0
    # Turned inputs turn the weights, but for the two fits' starts.
    gap = first.q.loc + second.q.loc
    np.testing.assert_allclose(gap / np.exp(first.q.log_std), 0.0, atol=0.2)


def test_a_number_that_is_set_anew_is_another_model(key):
    """`pm.Data` of a number has no axes, and is a constant of what is compiled."""
    with pm.Model() as model:
        scale = pm.Data("scale", 1.0)
        pm.Normal("y", pm.Normal("mean", 0, 1), scale, observed=np.ones(3))
    for value in (1.0, 0.1):
        with model:
            pm.set_data({"scale": value})
        result = qg.fit(qg.Target.from_pymc(model), method="saa", key=key)
        np.testing.assert_allclose(result.q.loc, 3 / (3 + value**2), atol=1e-3)


def test_models_built_anew_have_their_own_data_and_share_programs(key):
    results = []
    for value in (1.0, -1.0):
        with pm.Model() as model:
            y = pm.Data("seen", np.full(3, value))
            mean = pm.Normal("mean", 0, 1)
            pm.Deterministic("shifted", mean + y.sum())
            pm.Normal("y", mean, 1.0, observed=y)
        results.append(qg.fit(qg.Target.from_pymc(model), method="saa", key=key))
        with model:
            pm.set_data({"seen": np.full(3, 100.0)})
    assert results[1].programs == 0
    for value, result in zip((1.0, -1.0), results, strict=True):
        np.testing.assert_allclose(result.q.loc, 0.75 * value, atol=1e-3)
        drawn = result.sample(key, 5)
        np.testing.assert_allclose(drawn["shifted"] - drawn["mean"], 3 * value, rtol=1e-6)
        np.testing.assert_array_equal(result.to_arviz(5)["observed_data"]["y"], value)


def refused(model):
    with pytest.raises((TypeError, ValueError)) as caught:
        qg.Target.from_pymc(model)
    return str(caught.value)


def test_what_has_no_fixed_density_is_refused():
    with pm.Model() as discrete:
        n = pm.Poisson("n", 3.0)
        pm.Normal("x", n, 1.0)
    with pm.Model() as batched:
        rows = pm.Minibatch(Y, batch_size=4)
        pm.Normal("y", pm.Normal("mean", 0, 1), 1.0, observed=rows, total_size=12)
    assert "discrete variables without data (n)" in refused(discrete)
    assert "without pm.Minibatch and total_size, and batch_size=... to fit" in refused(batched)
    assert "got int" in refused(3)
