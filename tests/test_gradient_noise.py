"""Variance, paired ratio, bias and error of gradients against plain formulas over the same keys."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, by_quadrature
from subjects import family, target_2d

import quietgrad as qg
from quietgrad.estimators import AbstractEstimator, Pathwise
from quietgrad.evaluation import gradient_noise


class Scaled(AbstractEstimator):
    """A plain estimator whose gradient is `factor` times too long: as biased as one likes, and it may
    not tell."""

    plain: Pathwise
    factor: float
    told: bool = True

    @property
    def biased(self):
        return self.told

    def refuses(self, target, q):
        return self.plain.refuses(target, q)

    def _init(self, target, q):
        return self.plain.init(target, q)

    def step(self, target, q, state, *, key):
        estimate, state = self.plain.step(target, q, state, key=key)
        longer = jax.tree.map(lambda g: self.factor * g, estimate.grad)
        return eqx.tree_at(lambda e: e.grad, estimate, longer), state


PLAIN = Pathwise(draws=4)


@pytest.fixture(scope="module")
def pair():
    return target_2d("curved"), family("mean-field", 2)


def gradients(target, q, estimator, repeats, key):
    """The gradients that `gradient_variance` sees, group by group."""
    state = estimator.init(target, q)
    groups = gradient_noise.GROUPS
    keys = jax.vmap(lambda k: jr.split(k, repeats // groups))(jr.split(key, groups))
    step = jax.jit(jax.vmap(lambda k: estimator.step(target, q, state, key=k)[0].grad))
    return step(keys.reshape(-1))


def test_variance_is_the_papers_formula(pair, key):
    """V = (1/R) sum_j |g_j - mean g|^2, in all and block by block."""
    made = qg.gradient_variance(*pair, PLAIN, repeats=200, key=key)
    grads = gradients(*pair, PLAIN, 200, key)
    blocks = {name: np.sum(np.var(getattr(grads, name), axis=0)) for name in ("loc", "log_std")}
    assert set(made.blocks) == set(blocks)
    for name, value in blocks.items():
        np.testing.assert_allclose(made.blocks[name], value, rtol=1e-12)
    np.testing.assert_allclose(made.total, sum(blocks.values()), rtol=1e-12)
    np.testing.assert_allclose(made.mean.loc, np.mean(grads.loc, axis=0), rtol=1e-12)


def test_variance_error_is_honest(pair):
    """Over many repetitions the stated error squared is the squared deviation, to first order in 1/R."""
    keys = jr.split(jr.key(5), 400)
    made = jax.lax.map(lambda k: qg.gradient_variance(*pair, PLAIN, repeats=100, key=k), keys)
    truth = np.mean(made.total)
    squared = np.asarray(made.error) ** 2
    # Groups leave out the spread between their means, a tenth of the information.
    assert_mean((made.total - truth) ** 2 - squared, 0.0, slack=0.2 * np.mean(squared))


def test_draws_average_the_variance_down(pair, key):
    """Independent draws: V is proportional to 1/L."""
    few, many = (qg.gradient_variance(*pair, Pathwise(draws=d), repeats=2000, key=key) for d in (2, 8))
    spread = np.hypot(few.error, 4 * many.error)
    assert abs(few.total - 4 * many.total) < 5 * spread


def test_ratio_of_an_estimator_to_itself_is_one(pair, key):
    made = qg.variance_ratio(*pair, "nocv", repeats=40, key=key)
    assert made.ratio == 1
    assert made.error == 0
    assert all(value == 1 for value in made.blocks.values())


def test_ratio_is_paired(pair, key):
    """Both see the same keys: an estimator twice as long has exactly four times the variance."""
    made = qg.variance_ratio(*pair, Scaled(PLAIN, 2.0), baseline=PLAIN, repeats=40, key=key)
    # Equal but for rounding: doubling is exact, the sums around it may be fused differently.
    np.testing.assert_allclose(made.ratio, 4, rtol=1e-12)
    assert made.error == 0


def test_ratio_is_the_quotient_of_the_variances(pair, key):
    quiet = Pathwise(draws=4, entropy="stl", sampler="antithetic")
    made = qg.variance_ratio(*pair, quiet, baseline=PLAIN, repeats=100, key=key)
    each = [qg.gradient_variance(*pair, e, repeats=100, key=key) for e in (quiet, PLAIN)]
    np.testing.assert_allclose(made.ratio, each[0].total / each[1].total, rtol=1e-12)
    for name, value in made.blocks.items():
        np.testing.assert_allclose(value, each[0].blocks[name] / each[1].blocks[name], rtol=1e-12)


def test_ratio_error_is_honest(pair):
    """Over many repetitions the stated error squared is the squared deviation of the ratio."""
    quiet = Pathwise(draws=4, entropy="stl")
    keys = jr.split(jr.key(6), 400)
    made = jax.lax.map(
        lambda k: qg.variance_ratio(*pair, quiet, baseline=PLAIN, repeats=100, key=k), keys
    )
    squared = np.asarray(made.error) ** 2
    # A jackknife over ten groups is of first order in 1/R, and rather too large.
    assert_mean((made.ratio - np.mean(made.ratio)) ** 2 - squared, 0.0, slack=0.3 * np.mean(squared))


def test_default_baseline_has_as_many_draws(pair, key):
    default = qg.variance_ratio(*pair, Pathwise(draws=4, entropy="stl"), repeats=40, key=key)
    stated = qg.variance_ratio(
        *pair, Pathwise(draws=4, entropy="stl"), baseline=PLAIN, repeats=40, key=key
    )
    assert default.ratio == stated.ratio


def test_minibatches_add_their_noise(pair, key):
    full = qg.gradient_variance(*pair, PLAIN, repeats=1000, key=key)
    single = qg.gradient_variance(*pair, PLAIN, repeats=1000, batch_size=1, key=key)
    assert single.total - full.total > 5 * np.hypot(full.error, single.error)
    gap = ravel_pytree(single.mean)[0] - ravel_pytree(full.mean)[0]
    assert np.all(np.abs(gap) < 5 * np.sqrt((full.total + single.total) / 1000))


def test_state_is_held_fixed(pair, key):
    """A learned surrogate is quieter with the state of a fit than with that of its start."""
    est = qg.estimator("quadcv", draws=4, rate=0.1)
    state, q = est.init(*pair), pair[1]
    step = eqx.filter_jit(est.step)
    for k in jr.split(key, 200):
        _, state = step(pair[0], q, state, key=k)
    start, learned = (
        qg.gradient_variance(*pair, est, state=s, repeats=200, key=key) for s in (None, state)
    )
    assert start.total - learned.total > 5 * np.hypot(start.error, learned.error)


def test_plain_gradient_shows_no_bias(pair, key):
    made = qg.gradient_error(*pair, PLAIN, repeats=2000, key=key)
    assert abs(made.bias_squared) < 5 * made.bias_error
    np.testing.assert_allclose(made.mse, made.variance + made.bias_squared, rtol=1e-12)


def test_squared_bias_is_corrected_for_noise(pair):
    """Without bias its mean is zero, however noisy both means are."""

    def error(key):
        return qg.gradient_error(
            *pair, PLAIN, reference=PLAIN, repeats=20, reference_repeats=20, key=key
        ).bias_squared

    assert_mean(jax.lax.map(error, jr.split(jr.key(6), 500)), 0.0)


def test_bias_is_found_and_measured(pair, key):
    """A gradient 1.5 times too long is off by half of the exact one."""
    made = qg.gradient_error(*pair, Scaled(PLAIN, 1.5), repeats=2000, key=key)
    exact = by_quadrature(*pair).value[:-1]
    assert made.bias_squared > 5 * made.bias_error
    assert abs(made.bias_squared - 0.25 * exact @ exact) < 5 * made.bias_error


def test_bias_error_is_honest(pair):
    """Over many repetitions the stated error squared is the squared deviation of the squared bias."""
    exact = by_quadrature(*pair).value[:-1]

    def error(key):
        return qg.gradient_error(
            *pair, Scaled(PLAIN, 2.0), reference=PLAIN, repeats=20, reference_repeats=20, key=key
        )

    # A gradient twice as long is off by the exact one.
    made = jax.lax.map(error, jr.split(jr.key(8), 1000))
    squared = np.asarray(made.bias_error) ** 2
    off = (made.bias_squared - exact @ exact) ** 2 - squared
    # The square of a variance with ten degrees of freedom, as here, is a fifth too large on average.
    assert_mean(off, 0.0, slack=0.2 * np.mean(squared))


@pytest.mark.parametrize("bias", [1.0, 2.0])
def test_a_bias_and_its_error_have_the_unit_of_squared_gradients(pair, bias, key):
    """Where estimator and reference are eight times as long, all is 64 times as large; without a bias
    its error is from the noise of both means alone."""

    def error(factor):
        ours, truth = (Scaled(PLAIN, x * factor, told=False) for x in (bias, 1.0))
        return qg.gradient_error(*pair, ours, reference=truth, repeats=20, reference_repeats=20, key=key)

    once, longer = error(1.0), error(8.0)
    for name in ("bias_squared", "variance", "mse"):
        np.testing.assert_allclose(getattr(longer, name), 64 * getattr(once, name), rtol=1e-12)
    np.testing.assert_allclose(longer.bias_error, 64 * once.bias_error, rtol=1e-12)


def test_reference_must_be_unbiased(pair, key):
    with pytest.raises(ValueError, match="unbiased"):
        qg.gradient_error(*pair, PLAIN, reference=Scaled(PLAIN, 1.5), key=key)
