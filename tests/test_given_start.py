"""An instance is the start of a fit: it goes on from there, and never ends below it."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.judging import Judge, paired

SIZES = jnp.asarray(np.random.default_rng(0).normal(size=(40, 5)))
SEEN = jnp.asarray(np.random.default_rng(1).random(40) < 0.6)


def logistic(z):
    """A posterior with correlations that is not Gaussian."""
    logits = 2 * SIZES @ z
    return jnp.sum(jnp.where(SEEN, logits, 0.0) - jnp.logaddexp(0.0, logits)) - 0.5 * z @ z / 9


TARGET = qg.Target.from_logdensity(logistic, dim=5)
FAMILIES = {
    "mean-field": "mean-field",
    "low-rank": "low-rank",
    "full-rank": "full-rank",
    "contained flow": "real-nvp-whitened",
}


def bimodal(height=6.0, apart=9.0):
    """Two Gaussians with correlations; the one at `apart` has `height` nats more."""
    precision = jnp.array([[2.0, 0.9], [0.9, 1.0]])

    def around(z, center):
        off = z - center
        return -0.5 * off @ precision @ off

    def log_density(z):
        return jnp.logaddexp(around(z, 0.0), height + around(z, apart))

    return qg.Target.from_logdensity(log_density, dim=2)


def gain_over(target, q, start, pairs=2048):
    """How far q is above the start at draws that no fit has seen, with its standard error."""
    judge = Judge(target, pairs=pairs, seed=jnp.array([7, 11], jnp.uint32))
    return paired(judge.terms(q), judge.terms(start))


def not_below(target, result, start):
    gained, error = gain_over(target, result.q, start)
    return gained > -3 * error - 1e-3


@pytest.fixture(scope="module")
def optima():
    return {name: qg.fit(TARGET, family, key=jr.key(3)).q for name, family in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("number", [0, 1])
def test_a_fit_that_starts_at_the_optimum_stays_there(name, number, optima):
    start = optima[name]
    result = qg.fit(TARGET, start, key=jr.key(20 + number))
    assert result.status is qg.Status.CONVERGED, result.hint
    assert type(result.q) is type(start)
    assert not_below(TARGET, result, start)
    # What was looked at first is the start itself.
    own, error = gain_over(TARGET, start, start)
    assert (own, error) == (0.0, 0.0)
    assert abs(result.history["elbo"][0] - result.elbo) < 5 * result.elbo_error + 0.5


def test_nothing_else_is_tried_where_nothing_is_left_to_gain(optima):
    result = qg.fit(TARGET, optima["full-rank"], key=jr.key(5))
    assert result.steps == 0
    assert eqx.tree_equal(result.q, optima["full-rank"])
    assert [decision.kind for decision in result.decisions] == ["climb stop"]


def test_a_flow_without_a_mean_field_member_stays_at_its_optimum():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - 0.1 * z[0] ** 4, dim=2)
    start = qg.fit(target, "real-nvp", key=jr.key(0)).q
    result = qg.fit(target, start, key=jr.key(1))
    assert not_below(target, result, start)
    assert result.status is qg.Status.CONVERGED, result.hint
    assert {"near", "far"} & {decision.kind for decision in result.decisions}


@pytest.mark.parametrize("family", ["mean-field", "full-rank", "low-rank", "real-nvp-whitened"])
def test_a_start_in_the_higher_mode_stays_with_it(family):
    target, key = bimodal(), jr.key(2)
    made = dict(qg.families.REGISTRY)[family]
    by_name = qg.fit(target, family, key=key)
    assert float(by_name.q.sample(jr.key(0), 500).mean()) < 4
    member = qg.MeanField(jnp.full(2, 9.5), jnp.full(2, -0.5))
    q = made.init(2, key=key)
    start = q.start_from(member, key=key)
    result = qg.fit(target, start, key=key)
    assert result.status is qg.Status.CONVERGED, result.hint
    assert float(result.q.sample(jr.key(0), 500).mean()) == pytest.approx(9, abs=0.3)
    assert result.elbo > by_name.elbo + 4
    gained, error = gain_over(target, result.q, start)
    assert gained > 3 * error


@pytest.mark.parametrize("method", ["auto", "saa", "bam", "sgd"])
def test_every_method_goes_on_from_the_start(method):
    """The higher mode lies where no start of a method's own would look for it."""
    target, key = bimodal(apart=12.0), jr.key(4)
    made = qg.Sgd(steps=2000, evaluate_every=200) if method == "sgd" else method
    root = np.linalg.cholesky(np.linalg.inv([[2.0, 0.9], [0.9, 1.0]]))
    full = qg.FullRank.init(2, key=key).for_quadratic(np.full(2, 12.3), np.linalg.inv(root @ root.T))
    result = qg.fit(target, full, method=made, key=key)
    np.testing.assert_allclose(result.q.mean(), 12.0, atol=0.2)
    assert not_below(target, result, full)


@pytest.mark.parametrize("method", ["saa", "bam", qg.Saa(polish_steps=0), qg.Bam(mode=False)])
def test_other_methods_stay_at_an_optimum(method, optima):
    start = optima["full-rank"]
    result = qg.fit(TARGET, start, method=method, key=jr.key(9))
    assert result.status is qg.Status.CONVERGED, result.hint
    assert not_below(TARGET, result, start)


SETTINGS = {
    "auto": "auto",
    "steps only": qg.Auto(fixed_draws=False, steps=3000),
    "saa": "saa",
    "overfitted": qg.Saa(draws=2, most_draws=2, fresh=False, polish_steps=0),
    "bam": "bam",
    "few iterations": qg.Bam(iterations=30, draws=2, mode=False),
    "sgd": qg.Sgd(steps=300, evaluate_every=30),
    "wild steps": qg.Sgd(optimizer=__import__("optax").adam(3.0), steps=100, evaluate_every=10),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_method_ends_below_its_start(setting, optima):
    """From an optimum, and from a place that is a nat or so off."""
    best = optima["full-rank"]
    off = eqx.tree_at(lambda q: q.loc, best, best.loc + 0.5 * jnp.sqrt(best.variance()))
    for number, start in enumerate((best, off)):
        result = qg.fit(TARGET, start, method=SETTINGS[setting], key=jr.key(40 + number))
        assert not_below(TARGET, result, start), (number, result.status, result.hint)
