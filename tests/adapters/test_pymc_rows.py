"""Minibatches of PyMC models: rows that need no other rows, and reasons where there are none."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pymc as pm
import pytest

import quietgrad as qg

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
NOISE, ROWS = np.random.default_rng(0), 400
X, GROUP = NOISE.normal(size=(ROWS, 2)), NOISE.integers(0, 3, ROWS)
YES = (NOISE.random(ROWS) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(int)
LEVEL = X @ [0.5, 1.0] + NOISE.normal(size=ROWS)


def logistic():
    """Containers of data, dims, a hierarchy of few groups and a potential."""
    with pm.Model(coords={"input": ["age", "size"], "row": np.arange(ROWS)}) as model:
        x, group = pm.Data("x", X, dims=("row", "input")), pm.Data("group", GROUP, dims="row")
        w = pm.Normal("w", 0, 2, dims="input")
        shift = pm.Normal("shift", 0, pm.HalfNormal("std", 1.0), shape=3)
        pm.Potential("pull", -0.1 * (w[0] - w[1]) ** 2)
        pm.Bernoulli("y", logit_p=x @ w + shift[group], observed=YES, dims="row")
    return model


def linear():
    """Arrays written into the model."""
    with pm.Model() as model:
        w, std = pm.Normal("w", 0, 2, shape=2), pm.HalfNormal("std", 1.0)
        pm.Normal("y", X @ w, std, observed=LEVEL)
    return model


def several():
    """Two variables in rows, one of them with a further axis, and one number beside them."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
        pm.StudentT("y", nu=3, mu=a, sigma=1.0, observed=LEVEL)
        pm.Normal("x", a + b, 1.0, observed=X)
        pm.Normal("other", b, 1.0, observed=0.5)
    return model


def vectors():
    """An event axis in each row."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1, shape=2)
        pm.MvNormal("x", mean, cov=np.array([[1.0, 0.3], [0.3, 1.0]]), observed=pm.Data("seen", X))
    return model


def mixture():
    with pm.Model() as model:
        weight, mean = pm.Dirichlet("weight", np.ones(2)), pm.Normal("mean", [-1, 1], 1, shape=2)
        pm.NormalMixture("y", w=weight, mu=mean, sigma=1.0, observed=LEVEL)
    return model


SEPARATE = {f.__name__: f for f in (logistic, linear, several, vectors, mixture)}


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SEPARATE)
def test_rows_add_up_to_pymcs_density_and_are_scaled_in_batches(name):
    model = SEPARATE[name]()
    target = qg.Target.from_pymc(model)
    assert (target.rows, target.size) == (ROWS, ROWS)
    z = jnp.asarray(0.3 * np.random.default_rng(1).normal(size=target.dim))
    point = {name: np.asarray(x) for name, x in target.point(z).items()}
    own = model.compile_logp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(eqx.filter_jit(target.log_density)(z), own, rtol=1e-9)
    chosen = np.array([7, 0, 399, 3])
    rows = eqx.filter_jit(target.log_likelihoods)(z)
    some = eqx.filter_jit(target.on_rows(chosen).log_likelihoods)(z)
    np.testing.assert_allclose(some, rows[chosen], rtol=1e-9)
    batch = eqx.filter_jit(target.on_rows(chosen).log_density)(z)
    expected = own - np.sum(rows) + ROWS / 4 * np.sum(some)
    np.testing.assert_allclose(batch, expected, rtol=1e-9)


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("name", ["logistic", "linear"])
def test_a_minibatch_fit_agrees_with_that_of_all_rows(name, key):
    target = qg.Target.from_pymc(SEPARATE[name]())
    full = qg.fit(target, "full-rank", key=key)
    some = qg.fit(target, "full-rank", batch_size=100, key=key)
    assert some.status is qg.Status.CONVERGED, some.hint
    # Both end where less than half a nat is to be gained; a whole sd off in one coordinate costs that.
    assert some.elbo > full.elbo - 1.0 - 3 * (some.elbo_error + full.elbo_error)
    std = np.sqrt(np.asarray(full.q.variance()))
    np.testing.assert_allclose((some.q.mean() - full.q.mean()) / std, 0.0, atol=1.0)
    assert set(some.sample(key, 5)) == set(full.sample(key, 5))


def test_steps_of_a_batch_size_and_new_data_of_other_lengths(key):
    model = logistic()
    steps = qg.Sgd(steps=50, evaluate_every=25)
    first = qg.fit(qg.Target.from_pymc(model), method=steps, batch_size=10, key=key)
    with model:
        pm.set_data({"x": -X})
    again = qg.fit(qg.Target.from_pymc(model), method=steps, batch_size=10, key=key)
    assert first.steps == again.steps == 50
    assert again.programs == 0


def latent_rows():
    with pm.Model() as model:
        level = pm.Normal("level", 0, 1, shape=ROWS)
        pm.Normal("y", level, 1.0, observed=LEVEL)
    return model


def standardised():
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        pm.Normal("y", pm.Normal("a", 0, 1) * (x - x.mean()) / x.std(), 1.0, observed=LEVEL)
    return model


def in_time():
    with pm.Model() as model:
        first = pm.Normal.dist(0, 1)
        pm.AR("y", rho=[pm.Normal("a", 0, 0.5)], sigma=1.0, init_dist=first, observed=LEVEL)
    return model


def scaled():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a", 0, 1), 1.0, observed=LEVEL, total_size=10 * ROWS)
    return model


def two_lengths():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", a, 1.0, observed=LEVEL)
        pm.Normal("few", a, 1.0, observed=LEVEL[:10])
    return model


def one_number():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a", 0, 1), 1.0, observed=1.0)
    return model


REASONS = {
    latent_rows: "cannot be had without the others",
    standardised: "cannot be had without the others",
    in_time: "cannot be had without the others",
    scaled: "cannot be had without the others",
    two_lengths: "y has 400, few has 10",
    one_number: "no variable of the PyMC model is observed with an axis of rows",
}


@pytest.mark.parametrize("made", REASONS, ids=lambda f: f.__name__)
def test_rows_that_need_others_are_no_rows(made, key):
    model = made()
    target = qg.Target.from_pymc(model)
    assert target.rows == 0
    z = jnp.asarray(0.3 * np.random.default_rng(1).normal(size=target.dim))
    point = {name: np.asarray(x) for name, x in target.point(z).items()}
    own = model.compile_logp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(eqx.filter_jit(target.log_density)(z), own, rtol=1e-9)
    with pytest.raises(
        ValueError, match=f"batch_size was given, but .*{REASONS[made]}.*leave batch_size"
    ):
        qg.fit(target, batch_size=10, key=key)


def test_the_advice_for_a_model_of_minibatches_works(key):
    """Without pm.Minibatch and total_size, and with batch_size."""
    with pm.Model() as batched:
        rows = pm.Minibatch(LEVEL, batch_size=20)
        pm.Normal("y", pm.Normal("mean", 0, 1), 1.0, observed=rows, total_size=ROWS)
    with pytest.raises(ValueError, match=r"batch_size=\.\.\. to fit"):
        qg.Target.from_pymc(batched)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean", 0, 1), 1.0, observed=LEVEL)
    result = qg.fit(qg.Target.from_pymc(model), batch_size=20, key=key)
    exact, std = LEVEL.sum() / (ROWS + 1), 1 / np.sqrt(ROWS + 1)
    assert float(result.q.mean()[0]) == pytest.approx(exact, abs=0.5 * std)


def test_a_draw_with_an_invalid_parameter_has_no_prediction(key):
    with pm.Model() as model:
        pm.Normal("y", 0, pm.Normal("std", 0, 1), observed=LEVEL[:20])
    target = qg.Target.from_pymc(model)
    assert np.isnan(target.log_density(jnp.array([-1.0])))
    start = qg.MeanField(jnp.array([0.5]), jnp.array([-1.0]))
    result = qg.fit(target, start, method=qg.Sgd(steps=1, evaluate_every=1), key=key)
    assert result.status is qg.Status.NON_FINITE
    result.diagnose()
    result.to_arviz(20)
    drawn = np.asarray(result.sample(jr.split(key)[0], 40)["std"])
    with pytest.warns(UserWarning, match="their predictions are NaN"):
        predicted = result.predictive(key, draws=40)["y"]
    np.testing.assert_array_equal(np.isnan(predicted).all(axis=1), drawn < 0)
