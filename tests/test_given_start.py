"""An instance is the start of a fit: it goes on from there, and never ends below it."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import ElboEvaluator, paired_difference

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
    judge = ElboEvaluator(target, pairs=pairs, seed=jnp.array([7, 11], jnp.uint32))
    return paired_difference(judge.terms(q), judge.terms(start))


def not_below(target, result, start):
    gained, error = gain_over(target, result.q, start)
    return gained > -3 * error - 1e-3


@pytest.fixture(scope="module")
def optima():
    return {name: qg.fit(TARGET, family, key=jr.key(3)).q for name, family in FAMILIES.items()}


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
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
    assert [decision.kind for decision in result.decisions] == ["search stop"]


def test_a_flow_without_a_mean_field_member_stays_at_its_optimum():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - 0.1 * z[0] ** 4, dim=2)
    start = qg.fit(target, "real-nvp", key=jr.key(0)).q
    result = qg.fit(target, start, key=jr.key(1))
    assert not_below(target, result, start)
    assert result.status is qg.Status.CONVERGED, result.hint


@pytest.mark.turns(2)
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
    "wild steps": qg.Sgd(optimizer=optax.adam(3.0), steps=100, evaluate_every=10),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_method_ends_below_its_start(setting, optima):
    """From an optimum, and from a place that is a nat or so off."""
    best = optima["full-rank"]
    off = eqx.tree_at(lambda q: q.loc, best, best.loc + 0.5 * jnp.sqrt(best.variance()))
    for number, start in enumerate((best, off)):
        result = qg.fit(TARGET, start, method=SETTINGS[setting], key=jr.key(40 + number))
        assert not_below(TARGET, result, start), (number, result.status, result.hint)


def rows_and_start():
    noise = np.random.default_rng(5)
    x = noise.normal(size=(3000, 4))
    y = x @ np.array([1.0, -1.0, 0.5, 0.0]) + noise.normal(size=3000)

    def log_likelihood(z, rows):
        x, y = rows
        return -0.5 * (y - x @ z) ** 2

    target = qg.Target(lambda z: -0.5 * z @ z, log_likelihood, (jnp.asarray(x), jnp.asarray(y)), dim=4)
    precision = x.T @ x + np.eye(4)
    return target, np.linalg.solve(precision, x.T @ y), precision


@pytest.mark.turns(2)
@pytest.mark.parametrize("family", [qg.MeanField, qg.FullRank, qg.LowRank, qg.RealNVP])
def test_minibatch_fits_go_on_from_the_start(family, key):
    target, mean, precision = rows_and_start()
    q = family.init(4, key=key)
    if isinstance(q, qg.RealNVP):
        start = qg.fit(target, q, method=qg.Auto(steps=1000), key=key).q
    else:
        start = q.for_quadratic(mean, precision)
    result = qg.fit(target, start, batch_size=256, key=key)
    assert not_below(target, result, start)


def test_hyperparameters_beside_a_start(key):
    def log_prior(z, h):
        return jnp.sum(-0.5 * ((z - h) * jnp.array([1.0, 3.0])) ** 2) - 0.5 * h**2

    def log_likelihood(z, rows, h):
        return -0.5 * (rows - z[0] * z[1]) ** 2

    target = qg.Target(log_prior, log_likelihood, jnp.linspace(0.5, 1.5, 20), dim=2)
    first = qg.fit(target, "full-rank", hyperparameters=jnp.array(0.3), key=key)
    again = qg.fit(target, first.q, hyperparameters=first.hyperparameters, key=jr.key(8))
    assert again.status is qg.Status.CONVERGED, again.hint
    # The fit with hyperparameters keeps both where they are, but for what is not worth going on for.
    assert again.elbo > first.elbo - 3 * (first.elbo_error + again.elbo_error)


def test_restarts_keep_a_start_that_others_do_not_find(key):
    target = bimodal(apart=30.0)
    start = qg.FullRank.init(2, key=key).for_quadratic(np.full(2, 30.0), np.eye(2))
    result = qg.fit(target, start, restarts=3, key=key)
    np.testing.assert_allclose(result.q.mean(), 30.0, atol=0.2)
    assert result.restarts is not None
    assert result.restarts.best == 0
    # The other starts are random members of the family, and led elsewhere.
    assert any(each.distance > 10 for each in result.restarts.starts[1:])


def test_restarts_finish_the_given_start_however_scouts_rank_it(key, monkeypatch, optima):
    """Scouts see means and scales of a start only."""
    numbers = []
    run = qg.Auto.run
    monkeypatch.setattr(
        qg.Auto,
        "run",
        lambda self, problem, recorder: numbers.append(problem) or run(self, problem, recorder),
    )
    result = qg.fit(TARGET, optima["full-rank"], restarts=3, key=key)
    assert numbers[0].start_given
    assert not any(problem.start_given for problem in numbers[1:])
    assert not_below(TARGET, result, optima["full-rank"])


def test_each_of_many_fits_starts_there(key):
    target, mean, precision = rows_and_start()
    start = qg.FullRank.init(4, key=key).for_quadratic(mean, precision)
    x, y = target.data
    data = jnp.stack([x, x]), jnp.stack([y, y + 0.01])
    for result in qg.fit_many(target, start, data=data, key=key):
        assert result is not None
        assert result.status is qg.Status.CONVERGED
        assert result.steps <= 60


def test_a_checkpoint_tells_a_given_start_from_a_name(key, tmp_path, optima):
    start = optima["full-rank"]
    first = qg.fit(TARGET, start, checkpoint=tmp_path, key=key)
    again = qg.fit(TARGET, start, checkpoint=tmp_path, key=key)
    assert eqx.tree_equal(first.q, again.q)
    moved = eqx.tree_at(lambda q: q.loc, start, start.loc + 0.1)
    with pytest.raises(ValueError, match=r"family\.loc"):
        qg.fit(TARGET, moved, checkpoint=tmp_path, key=key)
    named = eqx.filter_jit(qg.FullRank.init)(5, key=key)
    qg.fit(TARGET, named, checkpoint=tmp_path / "named", key=key)
    with pytest.raises(ValueError, match="start_given"):
        qg.fit(TARGET, "full-rank", checkpoint=tmp_path / "named", key=key)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dim", [5, 300])
def test_a_start_that_only_says_the_rank_does_no_harm(dim, key):
    """A random member, as `init` makes it: the starts of a fit by name beat it."""
    scales = jnp.exp(jnp.linspace(-2, 2, dim))
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * jnp.sum((z / scales - 1) ** 2) - 2 * (z @ (1 / scales)) ** 2 / dim, dim=dim
    )
    by_name = qg.fit(target, "low-rank", key=key)
    result = qg.fit(target, qg.LowRank.init(dim, rank=5, key=jr.key(77)), key=key)
    assert result.status is qg.Status.CONVERGED, result.hint
    assert result.elbo > by_name.elbo - 0.5 - 3 * (result.elbo_error + by_name.elbo_error)


def test_a_good_low_rank_start_among_many_coordinates(key):
    """Beyond the dimensions of Newton steps the start is not left for the mean-field solution."""
    dim = 300
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * jnp.sum(z**2) - 20 * (jnp.sum(z) / jnp.sqrt(dim) - 1) ** 2, dim=dim
    )
    ones = np.ones((dim, dim)) / dim
    mean = np.full(dim, 40 / 41 / np.sqrt(dim))
    start = qg.LowRank.init(dim, rank=2, key=key).for_quadratic(mean, np.eye(dim) + 40 * ones)
    result = qg.fit(target, start, key=key)
    assert result.status is qg.Status.CONVERGED, result.hint
    assert not_below(target, result, start)
    assert result.steps < 2000


class Claims(qg.methods.AbstractMethod):
    """Tells of an answer that is worse, and claims to have converged there."""

    off: float

    def run(self, problem, session):
        """One worse answer, chosen."""
        session.evaluate(problem.q, 0)
        worse = eqx.tree_at(lambda q: q.loc, problem.q, problem.q.loc + self.off)
        session.choose(session.evaluate(worse, 1))
        return qg.Status.CONVERGED, "so it says"


@pytest.mark.parametrize(("off", "status"), [(1.0, qg.Status.STALLED), (1e-5, qg.Status.CONVERGED)])
def test_converged_below_the_start_is_impossible(off, status, optima):
    start = optima["mean-field"]
    result = qg.fit(TARGET, start, method=Claims(off), key=jr.key(1))
    assert result.status is status
    assert not_below(TARGET, result, start)
    if status is qg.Status.STALLED:
        assert "nats below the start that it was given" in result.hint
        assert eqx.tree_equal(result.q, start)


def test_a_start_without_a_finite_elbo_is_no_floor(key):
    """Log density only where all coordinates are positive; draws of the start are not."""
    target = qg.Target.from_logdensity(
        lambda z: jnp.where(jnp.all(jnp.abs(z) < 50), -0.5 * jnp.sum(z**2), -jnp.inf), dim=2
    )
    start = qg.FullRank.init(2, key=key).for_quadratic(np.full(2, 49.0), np.eye(2))
    result = qg.fit(target, start, key=key)
    assert np.isfinite(result.elbo)
    np.testing.assert_allclose(result.q.mean(), 0.0, atol=0.2)
