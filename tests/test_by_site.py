"""Families by site: the product against its parts, correlations where they belong, and points."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import quietgrad as qg
from quietgrad import FullRank, LowRank, MeanField, RealNVP
from quietgrad.families import HasEntropy
from quietgrad.families.by_site import BySite, product

COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.0]])


def target():
    """a and b are correlated within each; c has its best value at 3."""
    precision = jnp.asarray(np.linalg.inv(COVARIANCE))

    def log_density(z):
        pairs = (z["a"], z["b"])
        quadratic = sum(x @ precision @ x for x in pairs)
        return -0.5 * quadratic - 0.5 * jnp.sum((z["c"] - 3.0) ** 2) * 4

    example = {"a": jnp.zeros(2), "b": jnp.zeros(2), "c": jnp.zeros(1)}
    return qg.Target.from_logdensity(log_density, example=example)


@pytest.mark.turns(2)
@pytest.mark.parametrize("flow", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_product_is_its_parts_in_their_places(flow, dtype, key):
    keys = jr.split(key, 4)
    second = RealNVP.init(2, key=keys[1]) if flow else LowRank.init(2, key=keys[1], rank=1)
    parts = (FullRank.init(3, key=keys[0]), second)
    parts = jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, parts
    )
    q = product(parts, (((0, 1), (3, 5)), ((1, 3),)))
    assert isinstance(q, HasEntropy) == (not flow)
    e = jr.normal(keys[2], (q.base_dim,), dtype)
    first, other = e[: parts[0].base_dim], e[parts[0].base_dim :]
    (a, log_a, score_a), (b, log_b, score_b) = (
        part.transport_and_score(x) for part, x in zip(parts, (first, other), strict=True)
    )
    z, log_q, score = q.transport_and_score(e)
    rounding = 100 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(z, jnp.concatenate([a[:1], b, a[1:]]))
    np.testing.assert_allclose(score, jnp.concatenate([score_a[:1], score_b, score_a[1:]]))
    np.testing.assert_allclose(log_q, log_a + log_b, rtol=rounding)
    np.testing.assert_allclose(q.transport_and_log_prob(e)[1], log_q, rtol=rounding)
    np.testing.assert_allclose(q.log_prob(z), log_q, rtol=1000 * rounding)
    if isinstance(q, HasEntropy):
        np.testing.assert_allclose(q.entropy(), sum(p.entropy() for p in parts), rtol=rounding)


@pytest.mark.parametrize("dim", [2, 5])
def test_without_parts_a_product_has_two_halves_of_its_own(dim, key):
    """Of as many coordinates, or one more in the second."""
    q = BySite.init(dim, key=key)
    assert [part.dim for part in q.parts] == [dim // 2, dim - dim // 2]
    assert q.dim == q.base_dim == dim
    e = jr.normal(key, (dim,))
    parts = [part.transport(x) for part, x in zip(q.parts, (e[: dim // 2], e[dim // 2 :]), strict=True)]
    np.testing.assert_allclose(q.transport(e), jnp.concatenate(parts))


def test_a_mean_field_solution_is_a_start_of_all_parts(key):
    q = product((FullRank.init(2, key=key), MeanField.init(1, key=key)), (((1, 3),), ((0, 1),)))
    begin = MeanField(jnp.arange(3.0), jnp.array([0.1, 0.2, 0.3]))
    e = jr.normal(key, (3,))
    z = q.start_from(begin, key=key).transport(e)
    np.testing.assert_allclose(z, begin.transport(jnp.array([e[2], e[0], e[1]])), atol=1e-6)


@pytest.mark.parametrize("dim", [2, 3])
def test_by_itself_it_is_two_halves(dim, key):
    q = BySite.init(dim, key=key)
    assert [part.dim for part in q.parts] == [1, dim - 1]
    assert q.transport(jnp.zeros(dim)).shape == (dim,)


def test_one_coordinate_has_no_halves(key):
    with pytest.raises(ValueError, match="dim .*2.*got 1"):
        BySite.init(1, key=key)


def test_places_that_overlap_are_refused(key):
    with pytest.raises(ValueError, match="every coordinate once"):
        BySite(parts=(MeanField.init(2, key=key),) * 2, places=(((0, 2),), ((1, 3),)))


def test_every_site_gets_its_family(key):
    family = {"a": "full-rank", "b": "mean-field", "c": "map"}
    result = qg.fit(target(), family, progress=False, key=key)
    assert result.status is qg.Status.CONVERGED, result.hint
    z = np.asarray(result.q.sample(key, 4000))
    # A fit may end half a nat below its best, which is 1 sd in one coordinate at the very most.
    assert np.corrcoef(z[:, :2].T)[0, 1] == pytest.approx(0.9, abs=0.1)
    assert abs(np.corrcoef(z[:, 2:].T)[0, 1]) < 5 / np.sqrt(4000)
    # Given the other, a coordinate of b has the variance 1 - 0.9^2.
    assert z[:, 2:].std(axis=0) == pytest.approx(np.sqrt(0.19), rel=0.2)
    assert float(result.hyperparameters["c"][0]) == pytest.approx(3.0, abs=0.5)
    assert set(result.sample(key, 5)) == {"a", "b"}


def test_sites_of_a_model_are_named_and_points_are_among_its_draws(key):
    y = jnp.asarray(np.random.default_rng(0).normal(2.0, 0.5, 50))

    def model(y=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        std = numpyro.sample("std", dist.HalfNormal(2.0))
        with numpyro.plate("rows", 50):
            numpyro.sample("y", dist.Normal(mean, std), obs=y)

    given = qg.Target.from_numpyro(model, y=y)
    result = qg.fit(given, {"std": "map", "*": "mean-field"}, progress=False, key=key)
    drawn = result.sample(key, 2000)
    assert set(drawn) == {"mean", "std"}
    assert np.ptp(drawn["std"]) == 0
    assert float(drawn["std"][0]) == pytest.approx(float(y.std()), rel=0.2)
    assert float(np.std(drawn["mean"])) == pytest.approx(float(y.std()) / np.sqrt(50), rel=0.3)
    assert result.predictive(key, draws=7)["y"].shape == (7, 50)
    assert str(result.diagnose(seconds=600).verdict) == "trust"


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ({"a": "full-rank"}, r"no family for 'b', 'c'.*'\*': 'mean-field'"),
        ({"d": "map", "*": "mean-field"}, "family has 'd'; the sites are 'a', 'b', 'c'"),
        ({("a", "b"): "full-rank", "b": "map", "*": "map"}, "two families"),
        ({"*": "map"}, "every site is 'map'"),
        ({"*": "mean"}, "mean-field"),
        ({"a": 3, "*": "map"}, "a name or a family of dim 2; got 3"),
    ],
)
def test_dicts_that_make_no_sense_are_told(family, message, key):
    with pytest.raises(ValueError, match=message):
        qg.fit(target(), family, key=key)


def test_a_target_without_sites_is_told(key):
    with pytest.raises(ValueError, match="dict of named sites"):
        qg.fit(qg.Target.from_logdensity(lambda z: -z @ z, 2), {"a": "map"}, key=key)
