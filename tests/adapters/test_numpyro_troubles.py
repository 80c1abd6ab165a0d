"""NumPyro models that ended in an error: invalid numbers at a draw, sums over states inside a scan."""

# NumPyro types what it samples as anything like an array, which has no index and no minus.
# pyright: reportIndexIssue=false, reportOperatorIssue=false

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask
from numpyro.infer.util import potential_energy

import quietgrad as qg

NOISE = np.random.default_rng(0)
PLACE, MISSING = NOISE.integers(0, 12, 30), NOISE.random(30) < 0.3
AGE = np.where(MISSING, np.nan, NOISE.normal(size=30))


def imputation(place, age, validate=None, places=12):
    """Ages with gaps that are filled in, around means with scales that may be negative."""
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([places]).to_event(1))
    scale = numpyro.sample("scale", dist.Normal(0, 1).expand([places]).to_event(1))
    gaps = np.flatnonzero(np.isnan(age))
    filled = numpyro.sample("filled", dist.Normal(0, 1).expand([len(gaps)]).to_event(1))
    whole = jnp.asarray(np.nan_to_num(age)).at[gaps].set(filled)
    level = dist.Normal(mean[place], scale[place], validate_args=validate)
    numpyro.sample("age", level, obs=whole)


@pytest.fixture
def validated():
    """As `numpyro.enable_validation()` leaves it."""
    with numpyro.validation_enabled():
        yield


@pytest.mark.parametrize("validate", [None, True])
def test_an_invalid_draw_is_a_point_without_density(validated, validate, key):
    target = qg.Target.from_numpyro(imputation, PLACE, AGE, validate)
    z = jnp.asarray(NOISE.normal(size=target.dim))
    good = {name: abs(x) for name, x in target.point(z).items()}
    bad = good | {"scale": good["scale"].at[PLACE[0]].multiply(-1)}
    flat = [jax.flatten_util.ravel_pytree(point)[0] for point in (good, bad)]
    assert np.isfinite(target.log_density(flat[0]))
    assert np.isnan(target.log_density(flat[1]))
    assert np.all(np.isfinite(target.constrain(flat[1])["filled"]))
    own = potential_energy(imputation, (PLACE, AGE), {}, good)
    np.testing.assert_allclose(target.log_density(flat[0]), -own, rtol=1e-6)


@pytest.mark.parametrize("validate", [None, True])
def test_a_fit_that_meets_invalid_draws_says_so(validated, validate, key):
    """Any start has draws with negative scales, and no place that is tried has thirty positive ones."""
    target = qg.Target.from_numpyro(imputation, np.arange(30), AGE, validate, places=30)
    result = qg.fit(target, qg.MeanField(jnp.zeros(target.dim), jnp.zeros(target.dim)), key=key)
    assert result.status is qg.Status.NON_FINITE
    assert "not finite" in result.hint or "nan" in result.hint
    result.diagnose()
    result.to_arviz(20)
    for draws in (1, 20):
        assert result.predictive(key, draws=draws)["age"].shape == (draws, 30)


ANIMALS, YEARS = 8, 5
HISTORY = (NOISE.random((ANIMALS, YEARS)) < 0.5).astype(int)
HISTORY[:, 0] = NOISE.random(ANIMALS) < 0.5
SEX = NOISE.integers(0, 2, ANIMALS)


def recapture(survival, history, sex):
    """Who is alive, summed out inside a scan; `survival` makes the probability of a year there."""
    found = numpyro.sample("found", dist.Uniform(0, 1))
    yearly = survival(sex)

    def year(carry, seen_now):
        marked, alive = carry
        stays = yearly()
        with numpyro.plate("animals", history.shape[0], dim=-1), mask(mask=marked):
            p = dist.util.clamp_probs(marked * stays * alive + (1 - marked))
            alive = numpyro.sample("alive", dist.Bernoulli(p), infer={"enumerate": "parallel"})
            p = dist.util.clamp_probs(found * alive)
            numpyro.sample("seen", dist.Bernoulli(p), obs=seen_now)
        return (marked | seen_now.astype(bool), alive), None

    start = history[:, 0].astype(bool), jnp.ones(history.shape[0], dtype=int)
    scan(year, start, jnp.swapaxes(history[:, 1:], 0, 1))


def constant(sex):
    stays = numpyro.sample("stays", dist.Uniform(0, 1))
    return lambda: stays


def each_year(sex):
    return lambda: numpyro.sample("stays", dist.Uniform(0, 1))


def random_years(sex):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.Uniform(0, 2))
    return lambda: jax.nn.sigmoid(numpyro.sample("shift", dist.Normal(mean, scale)))


def each_sex(sex):
    stays = numpyro.sample("stays", dist.Uniform(0, 1).expand([2]).to_event(1))
    return lambda: stays[sex]


def years_and_sex(sex):
    step = numpyro.sample("step", dist.Normal(0, 2))
    return lambda: jax.nn.sigmoid(numpyro.sample("base", dist.Normal(0, 2)) + step * sex)


# The probabilities of staying, for each year and animal, from the model's own values.
STAYS = {
    constant: lambda v: v["stays"] * np.ones((YEARS - 1, ANIMALS)),
    each_year: lambda v: v["stays"][:, None] * np.ones(ANIMALS),
    random_years: lambda v: 1 / (1 + np.exp(-v["shift"]))[:, None] * np.ones(ANIMALS),
    each_sex: lambda v: np.tile(v["stays"][SEX], (YEARS - 1, 1)),
    years_and_sex: lambda v: 1 / (1 + np.exp(-v["base"][:, None] - v["step"] * SEX)),
}


def by_forward_sums(stays, found):
    """Sums over both states of every animal; a state that is masked has weight one, as in NumPyro."""
    weight, marked = np.stack([np.zeros(ANIMALS), np.ones(ANIMALS)]), HISTORY[:, 0] == 1
    for stay, seen in zip(stays, HISTORY.T[1:], strict=True):
        dead, alive = weight[0] + weight[1] * (1 - stay), weight[1] * stay
        moved = np.stack([dead * (seen == 0), alive * np.where(seen == 1, found, 1 - found)])
        weight = np.where(marked, moved, weight.sum(axis=0))
        marked = marked | (seen == 1)
    return np.sum(np.log(weight.sum(axis=0)))


def log_prior(target, survival, z):
    """The prior of the continuous sites and their Jacobians, from the model without its animals."""

    def alone():
        numpyro.sample("found", dist.Uniform(0, 1))
        yearly = survival(0)
        with numpyro.plate("years", YEARS - 1):
            yearly()

    return -potential_energy(alone, (), {}, target.point(z))


@pytest.mark.turns(2)
@pytest.mark.parametrize("survival", STAYS, ids=lambda f: f.__name__)
def test_states_are_summed_out_inside_a_scan(survival, key):
    target = qg.Target.from_numpyro(recapture, survival, HISTORY, SEX)
    for number in range(3):
        z = jr.normal(jr.fold_in(key, number), (target.dim,))
        values = {name: np.asarray(x) for name, x in target.constrain(z).items()}
        summed = by_forward_sums(STAYS[survival](values), values["found"])
        expected = log_prior(target, survival, z) + summed
        np.testing.assert_allclose(eqx.filter_jit(target.log_density)(z), expected, rtol=2e-5)


@pytest.mark.slow
def test_a_fit_of_states_in_a_scan_comes_back_in_names(key):
    target = qg.Target.from_numpyro(recapture, each_year, HISTORY, SEX)
    result = qg.fit(target, "full-rank", key=key)
    assert result.status is qg.Status.CONVERGED, result.hint
    assert result.to_arviz(10)["posterior"]["stays"].shape == (1, 10, YEARS - 1)
    assert result.predictive(key, draws=3)["seen"].shape == (3, YEARS - 1, ANIMALS)


def test_a_plate_inside_a_scan_names_an_axis(key):
    """Without discrete sites: the pointwise likelihood has the axis of the plate."""

    def walk(y):
        def step(level, now):
            level = numpyro.sample("level", dist.Normal(level, 1.0))
            with numpyro.plate("sensors", y.shape[1]):
                numpyro.sample("y", dist.Normal(level, 1.0), obs=now)
            return level, None

        scan(step, 0.0, y)

    target = qg.Target.from_numpyro(walk, NOISE.normal(size=(4, 3)))
    tree = qg.fit(target, key=key).to_arviz(5)
    assert tree["log_likelihood"]["y"].dims[-1] == "sensors"
