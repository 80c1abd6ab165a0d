"""The quadratic from running averages: where it converges to, how it travels, and how soon it helps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from literal import bent_target
from oracles import assert_same
from subjects import family, other_bases, target_2d

import quietgrad as qg
from quietgrad import families
from quietgrad.estimators import estimator
from quietgrad.estimators.surrogates import StreamedQuadratic
from quietgrad.families import HasPathMetric, MeanField

LOCATION_SCALE = [name for name, cls in families.REGISTRY.items() if issubclass(cls, HasPathMetric)]
# Of a base the quadratic sees the variance: other bases take turns from family to family, and the rest
# is slow.
ON_BASES = [pytest.param(name, None, jnp.float64) for name in LOCATION_SCALE] + [
    pytest.param(name, base, jnp.float64, marks=() if turn else pytest.mark.slow)
    for number, name in enumerate(LOCATION_SCALE)
    for place, base in enumerate(other_bases(name))
    for turn in [place == number % len(other_bases(name))]
]


@eqx.filter_jit
def run(target, q, watched, states, rate, steps, key):
    """q after steps of Adam on plain gradients, and the states of the estimators that watch."""
    rule, plain = optax.adam(rate), estimator("nocv")
    params, static = eqx.partition(q, eqx.is_inexact_array)

    def step(carry, key):
        params, memory, states = carry
        q = eqx.combine(params, static)
        states = [made.step(target, q, s, key=key)[1] for made, s in zip(watched, states, strict=True)]
        grad = plain.step(target, q, plain.init(target, q), key=key)[0].grad
        updates, memory = rule.update(jax.tree.map(jnp.negative, grad), memory, params)
        return (optax.apply_updates(params, updates), memory, states), None

    carry, _ = jax.lax.scan(step, (params, rule.init(params), states), jr.split(key, steps))
    return eqx.combine(carry[0], static), carry[2]


@pytest.mark.turns(3, first=1)
@pytest.mark.parametrize(
    ("name", "base", "dtype"),
    [("low-rank", None, jnp.float32), *ON_BASES],
)
def test_learns_a_gaussian_target_exactly_while_q_moves(name, base, dtype, key):
    """b and B are the target's own gradient and Hessian at the present mean, to rounding."""
    target, q = target_2d("gaussian", dtype), family(name, 2, base, dtype=dtype)
    made = estimator("quadcv-fast", draws=10, entropy="closed")

    @eqx.filter_jit
    def after_steps(q):
        q, (state,) = run(target, q, [made], [made.init(target, q)], 1e-3, 1000, key)
        v = made.surrogate.moved(state.surrogate.v, state.surrogate.memory, q)
        f = target.log_density
        return v, jax.hessian(f)(q.mean()), jax.grad(f)(q.mean())

    v, hessian, gradient = after_steps(q)
    # A step that rounds adds gain * eps, and the gap it leaves shrinks by the gain: a few hundred eps.
    slack = 300 * float(jnp.finfo(dtype).eps) * np.max(np.abs(hessian))
    np.testing.assert_allclose(v.matrix, hessian, rtol=0, atol=slack)
    np.testing.assert_allclose(v.linear, gradient, rtol=0, atol=slack)
    assert_same(v.matrix, v.matrix.T, operations=20)


def test_gradient_travels_with_the_mean(key):
    """f~ is the same function after q has moved: b becomes b + B dmu."""
    q, target, made = family("mean-field", 3), bent_target(3), estimator("quadcv-fast", draws=4)
    _, (state,) = run(target, q, [made], [made.init(target, q)], 0.0, 20, key)
    away = eqx.tree_at(lambda q: q.loc, q, q.loc + jnp.array([0.5, -1.0, 2.0]))
    v, memory, _ = state.surrogate
    moved = made.surrogate.moved(v, memory, away)
    assert_same(moved.linear, v.linear + v.matrix @ (away.loc - q.loc), operations=10)
    assert moved.matrix is v.matrix
    assert np.max(np.abs(moved.linear - v.linear)) > 0.1


@pytest.mark.slow
def test_is_far_quieter_than_quadcv_early_in_a_run(key):
    """After 100 steps of one run, with Adam 0.01 as in the paper, that both watch."""
    task = qg.tasks.load("breast-cancer")
    key_start, key_run, key_ratio = jr.split(key, 3)
    start = MeanField.init(task.dim, key=key_start)
    watched = [estimator(name) for name in ("quadcv", "quadcv-fast")]
    states = [made.init(task.train, start) for made in watched]
    q, states = run(task.train, start, watched, states, 1e-2, 100, key_run)
    slow, fast = (
        qg.variance_ratio(task.train, q, made, state=state, repeats=400, key=key_ratio)
        for made, state in zip(watched, states, strict=True)
    )
    assert fast.ratio + 5 * np.hypot(fast.error, slow.error) < slow.ratio


def test_wide_targets_are_learned_as_in_quadcv():
    """No (dim x dim) array beyond `largest`."""
    q, target = family("mean-field", 3), bent_target(3)
    state = StreamedQuadratic(largest=2).init(target, q)
    assert eqx.tree_equal((state.v, state.memory), StreamedQuadratic().wide.start(q))
    made = eqx.tree_at(lambda m: m.surrogate, estimator("quadcv-fast"), StreamedQuadratic(largest=2))
    _, after = eqx.filter_eval_shape(made.step, target, q, made.init(target, q), key=jr.key(0))
    assert jax.tree.structure(after.surrogate) == jax.tree.structure(state)


def test_flows_are_sent_to_quadcv():
    q, target = family("real-nvp", 2), bent_target(2)
    with pytest.raises(ValueError, match="RealNVP has no closed-form .* use the estimator 'quadcv'"):
        estimator("quadcv-fast").init(target, q)
