"""The joint control variate: unbiased whatever is stored, exact for quadratic rows, clear refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, assert_same, by_quadrature, replicate
from subjects import family, target_2d

import quietgrad as qg
from quietgrad import families
from quietgrad.estimators import Joint, Pathwise, estimator
from quietgrad.evaluation.gradient_noise import variance_ratio
from quietgrad.families import HasMoments
from quietgrad.targets import Target

LOCATION_SCALE = [name for name, cls in families.REGISTRY.items() if issubclass(cls, HasMoments)]
ROWS, BATCH = 40, 4
# Rounding of what cancels, in double precision, leaves about 1e-30 of the variance.
EXACT = 1e-20


def regression(*, dim=3, rows=ROWS):
    """Linear regression with known noise: every row's log likelihood is quadratic."""
    noise = np.random.default_rng(7)
    x = noise.normal(size=(rows, dim))
    y = x @ noise.normal(size=dim) + noise.normal(size=rows)

    def log_likelihood(z, data):
        x, y = data
        return -0.5 * (y - x @ z) ** 2

    return Target(
        lambda z: -0.5 * jnp.sum(z**2), log_likelihood, (jnp.asarray(x), jnp.asarray(y)), dim=dim
    )


def moved(q):
    """Another member of the family."""
    params, static = eqx.partition(q, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: 0.8 * x + 0.3, params), static)


def batch_of(target, size, key):
    return target.batch(jr.choice(key, target.rows, (size,), replace=False))


def gradient(made, target, q, state, size):
    """The flat gradient on random rows, as a function of a key."""

    def of(key):
        key_rows, key_draws = jr.split(key)
        estimate, _ = made.step(batch_of(target, size, key_rows), q, state, key=key_draws)
        return jnp.append(ravel_pytree(estimate.grad)[0], estimate.elbo)

    return of


def after_batches(made, target, places, size, key):
    """The state after one batch at every one of the places, so that rows differ in age."""
    state, step = eqx.filter_jit(made.init)(target, places[0]), eqx.filter_jit(made.step)
    for q, k in zip(places, jr.split(key, len(places)), strict=True):
        state = step(batch_of(target, size, k), q, state, key=k)[1]
    return state


# Forms take turns from family to family, and the rest of the product is slow.
CASES = [
    ("second order", "mean-field"),
    *(
        pytest.param(form, name, marks=() if (number + place) % 2 == 0 else pytest.mark.slow)
        for number, form in enumerate(("quiet", "second order, none"))
        for place, name in enumerate(LOCATION_SCALE)
    ),
]
FORMS = {
    "quiet": {"draws": 2},
    "second order": {"draws": 2, "order": 2},
    "second order, none": {"draws": 2, "order": 2, "scale": "none"},
}


@pytest.mark.turns(5)
@pytest.mark.parametrize(("form", "name"), CASES)
def test_mean_over_batches_and_draws_is_the_gradient(form, name, key):
    """With rows remembered from different places, by quadrature and standard errors."""
    target, q = target_2d("curved"), family(name, 2, small=True)
    made = estimator("joint", **FORMS[form])
    key_state, key_run = jr.split(key)
    state = after_batches(made, target, [moved(q), q], 2, key_state)
    truth = by_quadrature(target, q)
    samples = replicate(gradient(made, target, q, state, 2), 8000, key_run)
    assert not made.biased
    assert_mean(samples, truth.value, slack=truth.error)


def test_mean_is_right_for_any_state(key):
    """Whatever is stored, its mean being its mean."""
    target, q = target_2d("curved"), family("mean-field", 2)
    made = estimator("joint", order=2, draws=2)
    key_state, key_run = jr.split(key)
    stored = jr.normal(key_state, (target.rows, 2, 2))
    state = made.init(target, q)._replace(stored=stored, mean=jnp.mean(stored, axis=0))
    truth = by_quadrature(target, q)
    samples = replicate(gradient(made, target, q, state, 2), 8000, key_run)
    assert_mean(samples, truth.value, slack=truth.error)


def ratio(made, target, q, state, key):
    plain = Pathwise(draws=2, entropy="closed")
    found = variance_ratio(
        target, q, made, state=state, baseline=plain, repeats=200, batch_size=BATCH, key=key
    )
    return found.ratio


def test_exact_for_quadratic_rows(key):
    """Second order, mean-field: neither draws nor rows leave noise once every row was seen here."""
    target, q = regression(), family("mean-field", 3)
    made = estimator("joint", order=2, draws=2)
    assert ratio(made, target, q, made.init(target, q), key) < EXACT
    # The ratio can fail: what is stored elsewhere, and each half of the method by itself.
    assert ratio(made, target, q, made.init(target, moved(q)), key) > 1e-5
    assert ratio(estimator("taylor", draws=2), target, q, None, key) > 1e-2
    assert ratio(Joint(Pathwise(draws=2, entropy="closed"), order=2), target, q, None, key) > 1e-2


def test_pairs_see_the_same_slope_whichever_rows_they_meet(key):
    """Of rows with quadratic likelihoods, once every row was seen: the slope of all of them."""
    target, q = regression(), family("mean-field", 3)
    made = Joint(Pathwise(sampler="antithetic", entropy="closed", draws=2))
    state, step = eqx.filter_jit(made.init)(target, q), eqx.filter_jit(made.step)
    found = [step(batch_of(target, BATCH, k), q, state, key=k)[0].grad.loc for k in jr.split(key, 2)]
    every = jax.grad(target.log_density)(q.mean())
    for one in found:
        assert_same(one, every, operations=100 * ROWS)


@pytest.mark.slow
def test_order_one_takes_the_rows_out_of_the_location(key):
    """Pairs are exact for the location of a quadratic, so that all its noise is that of the rows."""
    target, q = regression(), family("mean-field", 3)
    pairs = Pathwise(sampler="antithetic", entropy="stl", draws=2)
    noise = variance_ratio(
        target, q, Joint(pairs), baseline=pairs, repeats=200, batch_size=BATCH, key=key
    ).blocks
    assert noise["loc"] < EXACT
    assert_same(noise["log_std"], jnp.ones(()), operations=100)


def test_rows_are_filled_by_an_epoch(key):
    """Every row is replaced where it was seen, and the running mean follows."""
    target, q = regression(), family("mean-field", 3)
    made = estimator("joint", order=2, draws=2)
    state, order = made.init(target, moved(q)), jr.permutation(key, ROWS)
    fresh, step = made.init(target, q), eqx.filter_jit(made.step)
    for n, rows in enumerate(order.reshape(-1, BATCH)):
        state = step(target.batch(rows), q, state, key=jr.fold_in(key, n))[1]
        assert_same(state.stored[rows], fresh.stored[rows], operations=100, scale=1e3)
        assert_same(state.mean, jnp.mean(state.stored, axis=0), operations=100, scale=1e3)
    assert_same(state.stored, fresh.stored, operations=100, scale=1e3)


@pytest.mark.parametrize("size", [20, 30])
def test_rounding_of_early_large_slopes_does_not_stay(size, key):
    """After an epoch the mean has the digits of what is stored then, even of batches without a rest."""
    target, q = regression(), family("mean-field", 3)
    made = estimator("joint", order=1, draws=2)
    far = eqx.tree_at(lambda q: q.loc, q, q.loc + 1e12)
    state, step = made.init(target, far), eqx.filter_jit(made.step)
    for first in (0, ROWS - size):
        rows = jnp.arange(first, first + size)
        state = step(target.batch(rows), q, state, key=key)[1]
    assert_same(state.mean, jnp.mean(state.stored, axis=0), operations=ROWS)


def test_what_is_stored_is_the_expansion_of_each_row():
    target, q = target_2d("curved"), family("mean-field", 2)
    slope = jax.jacobian(target.log_likelihoods)(q.mean())
    curvature = jax.vmap(jnp.diagonal)(jax.hessian(target.log_likelihoods)(q.mean()))
    expected = target.size * jnp.stack([slope, curvature], axis=1)
    assert_same(estimator("joint", order=2).init(target, q).stored, expected, operations=100)
    assert_same(estimator("joint").init(target, q).stored, expected[:, :1], operations=100)


def test_full_batch_is_the_estimator_inside(key):
    """With all rows there is no data noise to take out, and all of them are brought up to date."""
    target, q = target_2d("curved"), family("mean-field", 2)
    made = estimator("joint")
    estimate, state = made.step(target, q, made.init(target, moved(q)), key=key)
    plain, _ = made.inside.step(target, q, made.inside.init(target, q), key=key)
    assert_same(estimate.grad, plain.grad, operations=100)
    assert_same(state.stored, made.init(target, q).stored, operations=100)


def test_batches_know_their_rows():
    target = target_2d("curved")
    batch = target.batch(jnp.array([4, 0, 2]))
    assert target.row_numbers is None
    np.testing.assert_array_equal(batch.row_numbers, [4, 0, 2])
    np.testing.assert_array_equal(batch.batch(jnp.array([2, 0])).row_numbers, [2, 4])


def test_refusals_say_why():
    q = family("mean-field", 2)
    target = target_2d("curved")
    for made, given, what, words in [
        (estimator("joint"), Target.from_logdensity(lambda z: -z @ z, dim=2), q, "no rows"),
        (estimator("joint"), target.batch(jnp.arange(2)), q, "all rows"),
        (estimator("joint"), target, family("real-nvp", 2, small=True), "no closed-form mean"),
        (estimator("joint", order=2), target, family("full-rank", 2), "order=1"),
        (Joint(estimator("quiet"), largest=9), target, q, "10 numbers .5 rows x 2., more than 9"),
    ]:
        with pytest.raises(ValueError, match=words):
            made.init(given, what)


def test_limit_allows_what_it_says():
    target, q = target_2d("curved"), family("mean-field", 2)
    assert Joint(estimator("quiet"), largest=10).refuses(target, q) is None


@pytest.mark.parametrize("order", [0, 3])
def test_unknown_order_is_refused(order):
    with pytest.raises(ValueError, match=f"order must be .* got {order}"):
        Joint(estimator("quiet"), order=order)
    with pytest.raises(ValueError, match=f"order must be .* got {order}"):
        estimator("joint", order=order, scale="none")


@pytest.mark.turns(2)
@pytest.mark.parametrize("settings", [{}, {"order": 2}], ids=["order 1", "order 2"])
def test_fit_on_minibatches_finds_the_posterior(settings, key):
    """Mean-field on a Gaussian posterior: means are exact, precisions are the Hessian's diagonal."""
    target = regression()
    x, y = (np.asarray(a) for a in target.data)
    precision = np.eye(3) + x.T @ x
    result = qg.fit(
        target,
        qg.MeanField.init(3, key=key),
        method=qg.Sgd(
            estimator("joint", draws=2, **settings),
            optax.adam(optax.cosine_decay_schedule(0.1, 1500)),
            steps=1500,
        ),
        batch_size=BATCH,
        key=key,
    )
    std = np.diag(precision) ** -0.5
    # In standard deviations of q: a tenth costs 0.005 nats.
    np.testing.assert_allclose(result.q.loc / std, np.linalg.solve(precision, x.T @ y) / std, atol=0.1)
    np.testing.assert_allclose(result.q.log_std, np.log(std), atol=0.1)
    assert result.estimator_state.stored.shape == (ROWS, settings.get("order", 1), 3)
