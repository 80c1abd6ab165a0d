"""One pass from draws to gradient against the same estimator with per-draw gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from literal import (
    adjusted_mean,
    assert_close,
    bent_target,
    descent,
    in_sample,
    replaced,
    stein_columns,
    with_draws,
)
from subjects import family

from quietgrad import families
from quietgrad.estimators import Pathwise, estimator
from quietgrad.estimators.control_variates import SOURCES, QuadraticColumn
from quietgrad.estimators.control_variates.control_variate import take_sample
from quietgrad.estimators.entropy import Closed, Sampled
from quietgrad.estimators.surrogates import InSampleBeta, LaggedBeta, Quadratic
from quietgrad.families import HasPathMetric

LOCATION_SCALE = [name for name, cls in families.REGISTRY.items() if issubclass(cls, HasPathMetric)]
# Draws, dimension and steps. All combinations of these with the orders are in the tests of the weights,
# which see no family but its gradients at draws: one flow stands for all, and families take turns.
CASES = ((2, 1, 400), (5, 2, 1), (10, 7, 4), (12, 4, 20))
KINDS = (*LOCATION_SCALE, "real-nvp-affine")


def in_turn():
    """Each family with all cases: two of them, others for each, are for every run; the rest is slow."""
    for number, name in enumerate(KINDS):
        for place, case in enumerate(CASES):
            marks = () if (place - number) % len(CASES) < 2 else pytest.mark.slow
            yield pytest.param(name, *case, marks=marks)


def base_draws(q, draws, key):
    return q.base.sample((draws, q.base_dim), q.dtype, key=key)


def gradient(made, target, q):
    estimate, _ = made.step(target, q, made.init(target, q), key=jr.key(0))
    return ravel_pytree(estimate.grad)[0]


@pytest.mark.turns(4)
@pytest.mark.parametrize(("name", "draws", "dim", "steps"), list(in_turn()))
def test_weights_are_the_papers_inner_loop(name, draws, dim, steps, key):
    """The registered literal form and the loop in NumPy, all on the same draws."""
    target, q = bent_target(dim), family(name, dim)
    e = base_draws(q, draws, key)

    @eqx.filter_jit
    def gradients(q, e):
        settings = [{"draws": draws, "order": order, "steps": steps} for order in (1, 2)]
        forms = [
            [gradient(with_draws(estimator(form, **s), e), target, q) for s in settings]
            for form in ("zvcv-gd", "zvcv-gd-literal")
        ]
        return *forms, take_sample(target, q, Sampled(), e).phi

    fast, literal, phi = jax.tree.map(np.asarray, gradients(q, e))
    assert_close(fast, literal)
    for order, grad in zip((1, 2), fast, strict=True):
        columns = stein_columns(np.asarray(e), np.asarray(q.base.score(e)), order)
        assert_close(grad, adjusted_mean(phi, columns, descent(steps, 1e-3), in_sample(draws)))


@pytest.mark.turns(3)
@pytest.mark.parametrize(("beta", "source"), [("lagged", "lagged"), ("in-sample", "in-sample")])
@pytest.mark.parametrize("name", LOCATION_SCALE)
def test_one_pass_quadcv_is_per_draw_quadcv(name, beta, source, key):
    """Gradient, coefficient and learned quadratic, step by step while q moves."""
    target, q = bent_target(3), family(name, 3)
    fast = estimator("quadcv", draws=4, rate=0.05, beta=beta, entropy="closed")
    per_draw = estimator("quadcv-literal", draws=4, rate=0.05)
    per_draw = replaced(per_draw, "source", SOURCES[source]())

    @eqx.filter_jit
    def step(q, e, states):
        made = [with_draws(fast, e), with_draws(per_draw, e)]
        return [m.step(target, q, s, key=key) for m, s in zip(made, states, strict=True)]

    states, betas = [fast.init(target, q), per_draw.init(target, q)], []
    for key_step in jr.split(key, 6):
        (ours, one), (theirs, other) = step(q, base_draws(q, 4, key_step), states)
        assert_close(ours.grad, theirs.grad)
        assert_close(ours.elbo, theirs.elbo)
        np.testing.assert_allclose(ours.beta, theirs.beta[0], rtol=1e-10, atol=1e-14)
        assert_close(one.surrogate.v, other.control_variate.v)
        betas.append(abs(ours.beta))
        states, q = [one, other], eqx.apply_updates(q, jax.tree.map(lambda g: 0.1 * g, ours.grad))
    assert max(betas) > 0.01


def explicit_blocks(target, q, e, v):
    """Per-draw gradients and columns of the quadratic `v`, shaped like the family's arrays."""
    column = QuadraticColumn()
    sample = take_sample(target, q, Closed(), e)
    state = column.init(target, q)._replace(v=v)
    columns = column.columns(state, target, q, sample, key=jr.key(0))[:, :, 0]
    restore = ravel_pytree(eqx.filter(q, eqx.is_inexact_array))[1]
    return jax.vmap(restore)(sample.phi), jax.vmap(restore)(columns)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("name", "coefficient"),
    [
        pytest.param(name, coefficient, marks=() if (number + place) % 2 == 0 else pytest.mark.slow)
        for number, name in enumerate(LOCATION_SCALE)
        for place, coefficient in enumerate((InSampleBeta, LaggedBeta))
    ],
)
def test_one_coefficient_per_block(name, coefficient, key):
    target, q, draws = bent_target(3), family(name, 3), 4
    key_draws, key_v, key_averages = jr.split(key, 3)
    e = base_draws(q, draws, key_draws)
    made = with_draws(
        Pathwise(surrogate=Quadratic(coefficient(per_block=True)), entropy="closed", draws=draws), e
    )
    state = made.init(target, q)
    # A quadratic and averages that are not those of the start.
    v = scattered(state.surrogate.v, key_v)
    averages = state.surrogate.averages
    products = jax.tree.map(jnp.abs, scattered(averages.products, key_averages))
    started = averages._replace(products=products, empty=jnp.zeros((), bool))
    state = state._replace(surrogate=state.surrogate._replace(v=v, averages=started))

    estimate, after = eqx.filter_jit(made.step)(target, q, state, key=key)
    phi, columns = eqx.filter_jit(explicit_blocks)(target, q, e, v)
    now = type(products)(
        jax.tree.map(lambda c, p: np.sum(c * p) / draws, columns, phi),
        jax.tree.map(lambda c: np.sum(c**2) / draws, columns),
    )
    read = {InSampleBeta: now, LaggedBeta: products}[coefficient]
    beta = jax.tree.map(lambda a, b: -a / (b + 1e-6), *read)
    assert_close(estimate.beta, beta)
    mean = jax.tree.map(lambda p, b, c: np.mean(p + b * c, axis=0), phi, beta, columns)
    assert_close(estimate.grad, mean)
    mixed = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, products, now)
    kept = {InSampleBeta: products, LaggedBeta: mixed}[coefficient]
    assert_close(after.surrogate.averages.products, kept)


def scattered(tree, key):
    """Standard normal numbers in the shape of the tree."""
    flat, restore = ravel_pytree(tree)
    return restore(jr.normal(key, flat.shape))
