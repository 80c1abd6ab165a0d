"""Hyperparameters fitted beside q: gradients by quadrature, and models whose best ones are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from family_promises import PROMISES, promises_of
from oracles import assert_mean, by_quadrature, flat
from subjects import accepted

import quietgrad as qg
from quietgrad import estimators
from quietgrad.diagnostics.propriety import displacement
from quietgrad.estimators import entropy
from quietgrad.families import WithHyperparametersAndEntropy, beside
from quietgrad.targets.hyperparameters import fitted_beside, fixed_at

MEANS = 12


@pytest.mark.slow
def test_it_keeps_the_promises_of_a_family(register):
    name = "with-hyperparameters"
    register(name, WithHyperparametersAndEntropy)
    small = [(case, p) for case, p in promises_of(name, largest=2) if case[2] is None]
    assert len([PROMISES[p].check(case) for case, p in small]) >= len(PROMISES)


def prior(z, h):
    return -0.5 * jnp.sum((z - h["loc"]) ** 2 * jnp.exp(-2 * h["log_std"])) - jnp.sum(h["log_std"])


def likelihood(z, data, h):
    return -jnp.logaddexp(0.0, (z[0] + jnp.sin(h["loc"][0])) * data)


DATA = jnp.array([1.0, -0.5, 2.0])
START = {"loc": jnp.array([0.3]), "log_std": jnp.array(-0.2), "name": "not an array"}


def small_problem():
    q = qg.MeanField(jnp.array([0.4]), jnp.array([-0.3]))
    target = qg.Target(prior, likelihood, DATA, dim=1)
    return fitted_beside(target, START, 1, q.dtype), beside(q, START)


def accepting():
    target, q = small_problem()
    made = {name: make(**accepted(make, draws=4)) for name, make in estimators.REGISTRY.items()}
    return {name: e for name, e in made.items() if e.refuses(target, q) is None}


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", [name for name, e in accepting().items() if not e.biased])
def test_gradient_is_that_of_the_elbo(name, key):
    (target, q), estimator = small_problem(), accepting()[name]
    truth = by_quadrature(target, q)
    state, step = estimator.init(target, q), eqx.filter_jit(estimator.step)
    for warm_up in jr.split(jr.fold_in(key, 1), 3) if jax.tree.leaves(state) else ():
        _, state = step(target, q, state, key=warm_up)

    @eqx.filter_jit
    def many(state, keys):
        def one(key):
            estimate, _ = estimator.step(target, q, state, key=key)
            return flat(estimate.grad, estimate.elbo)

        return jax.lax.map(one, keys, batch_size=500)

    assert_mean(many(state, jr.split(key, 2000)), truth.value, slack=truth.error)


def test_entropy_modes_and_estimators_say_why_not():
    target, q = small_problem()
    assert {"nocv", "stl", "quiet", "zvcv", "antithetic"} <= accepting().keys()
    assert "takes no gradients" in str(estimators.REGISTRY["score"]().refuses(target, q))
    assert "no closed-form mean" in str(estimators.REGISTRY["taylor"]().refuses(target, q))
    assert all(mode().refuses(q) is None for mode in entropy.REGISTRY.values())
    flow = beside(qg.RealNVP.init(2, key=jr.key(0)), START)
    assert "no closed-form entropy" in str(qg.Closed().refuses(flow))


def normal_means(x):
    """x_i ~ N(z_i, 1), z_i ~ N(0, exp(2h)): marginally x_i ~ N(0, 1 + exp(2h))."""

    def log_prior(z, h):
        return -0.5 * jnp.sum(z**2) * jnp.exp(-2 * h) - z.size * (h + 0.5 * jnp.log(2 * jnp.pi))

    def log_likelihood(z, data):
        row, x = data
        return -0.5 * (x - z[row]) ** 2 - 0.5 * jnp.log(2 * jnp.pi)

    return qg.Target(log_prior, log_likelihood, (np.arange(x.size), x), dim=x.size)


def best_of_normal_means(x):
    """The evidence is highest at exp(2h) = mean(x^2) - 1."""
    square = np.mean(x**2)
    return square - 1, -0.5 * x.size * (1 + np.log(2 * np.pi * square))


X = 2.5 * np.random.default_rng(0).normal(size=MEANS)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_prior_variance_of_normal_means(batch_size, key):
    """The mean-field family holds the posterior, so the ELBO's maximum is that of the evidence."""
    result = qg.fit(normal_means(X), hyperparameters=jnp.array(0.0), batch_size=batch_size, key=key)
    variance, evidence = best_of_normal_means(X)
    assert result.status is qg.Status.CONVERGED
    # A fit may stop 0.5 nats below its best (`gain`); the bound never exceeds the evidence.
    assert evidence - 0.5 < result.elbo < evidence + 5 * result.elbo_error
    # log(1 + variance) costs dim / 4 times its squared error, to second order.
    off = np.log1p(np.exp(2 * result.hyperparameters)) - np.log1p(variance)
    assert abs(off) < np.sqrt(4 * 0.5 / MEANS)
    assert result.sample(key, 7).shape == (7, MEANS)
    assert result.target.dim == result.q.dim == MEANS
    z, target = jnp.ones(MEANS), normal_means(X)
    both = fitted_beside(target, jnp.array(0.0), MEANS, z.dtype)
    wide = fixed_at(target, both, jnp.array(3.0))
    at_answer = fixed_at(target, both, result.hyperparameters)
    np.testing.assert_array_equal(result.target.log_density(z), at_answer.log_density(z))
    assert not np.isclose(wide.log_density(z), at_answer.log_density(z))


class Prior(eqx.Module):
    """z_i ~ N(a line in w_i, std^2): amortised in w, with a part that is no array."""

    line: eqx.nn.Linear
    log_std: jax.Array
    link: object = jnp.tanh

    def __call__(self, w):
        return jax.vmap(self.line)(w)[:, 0]


def test_a_module_as_the_prior(key):
    """Marginally x_i ~ N(line(w_i), 1 + std^2): least squares, and the residuals' mean square."""
    rng = np.random.default_rng(1)
    w = jnp.asarray(rng.normal(size=(MEANS, 2)))
    x = np.asarray(w @ jnp.array([1.0, -2.0]) + 0.7) + 2 * rng.normal(size=MEANS)
    start = Prior(eqx.nn.Linear(2, 1, key=key), jnp.array(0.0))

    def log_prior(z, h):
        return jnp.sum(-0.5 * (z - h(w)) ** 2 * jnp.exp(-2 * h.log_std) - h.log_std)

    def log_likelihood(z, data):
        row, x = data
        return -0.5 * (x - z[row]) ** 2

    target = qg.Target(log_prior, log_likelihood, (np.arange(MEANS), x), dim=MEANS)
    result = qg.fit(target, hyperparameters=start, method=qg.Auto(gain=0.01), key=key)
    h = result.hyperparameters
    assert result.status is qg.Status.CONVERGED
    assert jax.tree.structure(h) == jax.tree.structure(start)
    design = np.column_stack([w, np.ones(MEANS)])
    found, residual, *_ = np.linalg.lstsq(design, x, rcond=None)
    square = float(residual[0]) / MEANS
    # 0.01 nats below the top, and as much again for what the test of a gain cannot see: a shift of the
    # line by delta costs MEANS mean(delta^2) / (2 square), and log(1 + std^2) as above.
    gap = np.asarray(h(w)) - design @ found
    assert np.mean(gap**2) < 2 * square * 0.02 / MEANS
    assert abs(np.log1p(np.exp(2 * h.log_std)) - np.log(square)) < np.sqrt(4 * 0.02 / MEANS)


def test_flat_hyperparameters_are_no_runaways_and_flat_points_are(key):
    """A hyperparameter that nothing depends on is left where it is; an improper point is still found."""
    h = {"params": {"loc": jnp.array(0.0), "idle": jnp.full(9, 3.0)}}

    def log_prior(z, h):
        return -0.5 * (z[0] - h["params"]["loc"]) ** 2

    def target(dim):
        return qg.Target(log_prior, lambda z, data: -0.5 * (data - z[0]) ** 2, DATA, dim=dim)

    proper, improper = (qg.fit(target(d), hyperparameters=h, key=key) for d in (1, 2))
    assert proper.status is qg.Status.CONVERGED
    np.testing.assert_array_equal(proper.hyperparameters["params"]["idle"], h["params"]["idle"])
    assert improper.status is qg.Status.UNBOUNDED
    assert "coordinate z[1]" in improper.hint
    zero, one = np.zeros(2), np.ones(2)
    assert list(displacement(9e9 * one, zero, zero, zero) > 0) == [False, False]
    assert list(displacement(9e9 * one, zero, zero, one) > 0) == [True, True]


def test_points_keep_their_form():
    def log_prior(point, h):
        return -0.5 * jnp.sum((point["a"] - h) ** 2) - 0.5 * jnp.sum(point["b"] ** 2)

    target = qg.Target(log_prior, example={"a": jnp.zeros((2, 2)), "b": jnp.zeros(())})
    z, h = jnp.arange(5.0), jnp.arange(4.0).reshape(2, 2)
    both = fitted_beside(target, h, 5, z.dtype)
    fixed = fixed_at(target, both, h)
    assert {name: x.shape for name, x in fixed.point(z).items()} == {"a": (2, 2), "b": ()}
    np.testing.assert_array_equal(fixed.log_density(z), log_prior(target.point(z), h))
    np.testing.assert_array_equal(both.log_density(jnp.append(z, h)), fixed.log_density(z))


def test_a_second_fit_is_not_compiled_again(key):
    fits = [
        qg.fit(normal_means(X + shift), hyperparameters=jnp.array(0.0), method=qg.Sgd(steps=20), key=key)
        for shift in (0.0, 1.0)
    ]
    assert fits[0].programs > 0
    assert fits[1].programs == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"hyperparameters": {"scale": 1.0}}, "no floating-point arrays"),
        ({"hyperparameters": jnp.ones(1, complex)}, "must be real"),
        ({}, "fit\\(..., hyperparameters=...\\)"),
        ({"family": "auto", "hyperparameters": jnp.zeros(())}, "name a family"),
        ({"method": "bam", "family": "full-rank", "hyperparameters": jnp.zeros(())}, "use 'auto' or"),
        ({"method": "saa", "hyperparameters": jnp.zeros(())}, "use 'auto' or"),
    ],
)
def test_misuse_says_what_to_do(settings, reason, key):
    with pytest.raises(ValueError, match=reason):
        qg.fit(normal_means(X), key=key, **settings)


def test_functions_without_a_place_for_them_are_named(key):
    target = qg.Target.from_logdensity(lambda z, scale=1.0: -scale * z @ z, 2)
    with pytest.raises(ValueError, match="neither log_prior"):
        qg.fit(target, hyperparameters=jnp.zeros(1), key=key)


def test_restarts_are_refused(key):
    target = qg.Target(prior, likelihood, DATA, dim=1)
    with pytest.raises(ValueError, match="restarts=3 .*leave restarts out"):
        qg.fit(target, hyperparameters=START, restarts=3, progress=False, key=key)


def test_a_hyperparameter_without_a_best_value_is_named(key):
    """The likelihood rises in h for ever: more steps would not help."""
    target = qg.Target(
        lambda z: -0.5 * z @ z, lambda z, data, h: h["gain"] * data + 0.0 * z[0], jnp.ones(3), dim=1
    )
    start = {"gain": jnp.array(0.0)}
    result = qg.fit(target, hyperparameters=start, method=qg.Sgd(steps=50), key=key)
    assert result.status == "unbounded"
    assert "gain" in result.hint
    assert "more steps do not help" in result.hint


def test_a_fit_that_only_ran_out_of_steps_says_so(key):
    target = qg.Target(lambda z, h: -0.5 * jnp.sum((z - h) ** 2) - (h - 5) ** 2, dim=1)
    result = qg.fit(target, hyperparameters=jnp.array(0.0), method=qg.Sgd(steps=5), key=key)
    assert result.status == "budget"
