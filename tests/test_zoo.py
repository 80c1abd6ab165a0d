"""The benchmarks' zoo: every model is a smooth density, and its stored reference is true of it."""

import sys
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of the source distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

zoo, reference, judging = map(import_module, ("zoo", "zoo.reference", "zoo.judging"))
classify, errors = judging.classify, judging.errors
needless_warning, trust_is_wrong = judging.needless_warning, judging.trust_is_wrong

REFERENCES = reference.read()
GAUSSIAN = ("conjugate-regression", "units", "collinear", "smoothing", "pymc-6271")
# Name, and the interval of each coordinate that holds all but a negligible part of the density.
ON_A_GRID = {
    "skewed": [(-60.0, 5.0)],
    "two-bumps": [(-12.0, 12.0)],
    "cauchy-location": [(-200.0, 200.0)],
    "bimodal": [(-12.0, 12.0), (-12.0, 12.0)],
    "banana": [(-7.0, 7.0), (-4.0, 102.0)],
}
WORDS = ("about", "source", "must_warn")
VIEWED = ("calendar-years", "schools-centred", "radon-centred", "pymc-1163", "rstan-1075")


def test_zoo_is_large_and_has_reported_failures():
    assert len(zoo.REGISTRY) >= 30
    assert sum(row["source"] is not None for row in REFERENCES.values()) >= 5


def test_references_are_of_models_in_the_order_of_the_zoo():
    assert len(REFERENCES) >= 30
    assert list(REFERENCES) == [name for name in zoo.REGISTRY if name in REFERENCES]


def test_unknown_model_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no model 'radom'.*radon-centred"):
        zoo.load("radom")


def rarely(names, every):
    """The names, of which every so-many-th is for every run and the rest is slow."""
    return [
        pytest.param(name, marks=() if place % every == 0 else pytest.mark.slow)
        for place, name in enumerate(names)
    ]


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", rarely(zoo.REGISTRY, every=5))
def test_model_is_twice_differentiable_and_is_what_the_reference_was_made_for(name):
    model, row = zoo.load(name), REFERENCES.get(name)

    def slopes(z):
        value, grad = jax.value_and_grad(model.log_density)(z)
        product = jax.jvp(jax.grad(model.log_density), (z,), (jnp.ones_like(z),))[1]
        return value, grad, product

    values, grads, products = jax.jit(jax.vmap(slopes))(jnp.asarray(model.points()))
    assert all(np.all(np.isfinite(array)) for array in (values, grads, products))
    assert np.any(np.asarray(products) != 0)
    if row is not None:
        assert (model.dim, reference.words(model)) == (row["dim"], {k: row[k] for k in WORDS})
        assert reference.same(row["fingerprint"], (values[1:] - values[0]).tolist())


@pytest.mark.parametrize("name", REFERENCES)
def test_chains_behind_a_reference_have_mixed(name):
    row = REFERENCES[name]
    assert row["good"]
    if not row["how"].startswith("NUTS"):
        return
    assert max(row["r_hat"]) < 1.01
    assert min(row["size"] + row["size_of_squares"]) > 1000
    # An effective size of 1000 leaves an error of 1/32 sd in a mean.
    assert np.all(np.asarray(row["mean_error"]) < 0.032 * np.asarray(row["std"]))


@pytest.mark.parametrize("name", GAUSSIAN)
def test_formula_of_a_gaussian_is_its_mode_and_curvature(name):
    model, row = zoo.load(name), REFERENCES[name]
    mean, std = jnp.asarray(row["mean"]), np.asarray(row["std"])
    slopes = jax.jit(lambda z: (jax.grad(model.log_density)(z), jax.hessian(model.log_density)(z)))
    slope, curvature = map(np.asarray, slopes(mean))
    # In units of the posterior's scales, which differ by 1e10 in one of them.
    covariance = np.linalg.inv(-curvature * np.outer(std, std))
    np.testing.assert_allclose(np.diag(covariance), 1.0, rtol=1e-5)
    np.testing.assert_allclose(covariance @ (slope * std), 0.0, atol=1e-5)


@pytest.mark.parametrize("name", ON_A_GRID)
def test_formula_agrees_with_the_density_on_a_grid(name):
    model, row, sides = zoo.load(name), REFERENCES[name], ON_A_GRID[name]
    axes = [np.linspace(*side, 200_001 if len(sides) == 1 else 801) for side in sides]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_p = np.asarray(jax.jit(jax.vmap(model.log_density))(jnp.asarray(points)))
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    mean = weights @ points
    std = np.sqrt(weights @ (points - mean) ** 2)
    # Sums over a grid that is fine against the density's width are exact far beyond this.
    np.testing.assert_allclose(mean, row["mean"], atol=1e-4 * std.max())
    np.testing.assert_allclose(std, row["std"], rtol=1e-4)


def test_switching_labels_changes_neither_density_nor_reference():
    model, name = zoo.load("mixture-switching"), "mixture-switching"
    z = jnp.asarray(model.points())
    switched = jnp.stack([z[:, 1], z[:, 0], z[:, 2], -z[:, 3]], axis=1)
    density = jax.jit(jax.vmap(model.log_density))
    np.testing.assert_allclose(density(z), density(switched), rtol=1e-9)
    for first, second, _, log_odds in [row["mean"] for key, row in REFERENCES.items() if key == name]:
        assert first == pytest.approx(second, rel=1e-9)
        assert log_odds == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", VIEWED)
def test_view_knows_its_jacobian(name):
    model = zoo.load(name)
    u = jnp.asarray(0.3 * np.random.default_rng(1).normal(size=model.dim))
    jacobian = jax.jit(jax.jacfwd(model.view.to_z))(u)
    log_det = np.linalg.slogdet(np.asarray(jacobian))[1]
    assert float(model.view.log_det(u)) == pytest.approx(log_det, abs=1e-8)


TRUTH = {"mean": [0.0, 10.0], "std": [1.0, 2.0], "must_warn": None}


def row_of(verdict, mean, std=(1.0, 2.0), corrected=None):
    return {
        "verdict": verdict,
        "corrected_error": corrected,
        **errors(TRUTH, np.asarray(mean), np.asarray(std)),
    }


def test_errors_are_in_posterior_sds():
    row = row_of("trust", [0.1, 11.0], [0.5, 3.0])
    assert row["mean_error"] == 0.5
    assert (row["least_std_ratio"], row["most_std_ratio"]) == (0.5, 1.5)


@pytest.mark.parametrize(
    ("verdict", "mean", "corrected", "expected"),
    [
        ("trust", 10.4, None, "right"),
        ("trust", 10.6, None, "silent"),
        ("do not trust", 10.6, None, "says so"),
        ("do not trust", 10.4, None, "right"),
        ("use the corrected draws", 10.6, 0.1, "right"),
        ("use the corrected draws", 10.6, 0.3, "silent"),
        ("trust", float("nan"), None, "silent"),
    ],
)
def test_classes(verdict, mean, corrected, expected):
    assert classify(row_of(verdict, [0.0, mean], corrected=corrected), TRUTH) == expected


def test_what_no_gaussian_follows_must_not_be_trusted():
    truth, narrow = TRUTH | {"must_warn": "two modes"}, [0.1, 0.2]
    assert classify(row_of("trust", [0.0, 10.0], narrow), truth) == "silent"
    assert classify(row_of("trust", [0.0, 10.0], narrow), TRUTH) == "right"
    # A flow can follow what no Gaussian does.
    assert classify(row_of("trust", [0.0, 10.0]), truth) == "right"
    nothing = {"must_warn": "improper"}
    row = {
        "verdict": "do not trust",
        "corrected_error": None,
        **errors(nothing, np.zeros(2), np.ones(2)),
    }
    assert classify(row, nothing) == "says so"
    assert classify(row | {"verdict": "trust"}, nothing) == "silent"
    assert trust_is_wrong(row | {"verdict": "trust"})


def test_verdicts_are_held_against_means_and_scales():
    assert not trust_is_wrong(row_of("trust", [0.0, 10.0]))
    assert trust_is_wrong(row_of("trust", [0.0, 10.0], [0.7, 2.0]))
    assert needless_warning(row_of("do not trust", [0.0, 10.0]))
    assert not needless_warning(row_of("do not trust", [0.0, 10.0], [0.1, 2.0]))
