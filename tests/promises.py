"""What every explicit control variate promises on every family: asked of the registered ones, and of
the worked example in CONTRIBUTING.md.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from oracles import assert_mean
from subjects import cast, family, target_2d

from quietgrad.estimators import Controlled
from quietgrad.estimators.control_variates import AbstractControlVariate
from quietgrad.estimators.control_variates.control_variate import take_sample
from quietgrad.estimators.entropy import Sampled
from quietgrad.families import AbstractFamily
from quietgrad.targets import Target

REPLICATIONS = 4000
UPDATES = 10


def assert_control_variate(name: str, kind: str, key: Array) -> None:
    """Fail unless the control variate registered as `name` keeps its promises on a family."""
    made = Controlled(name).control_variate
    target, q = target_2d("curved"), family(kind, 2, small=True)
    reason = made.refuses(target, q)
    if reason is None:
        _assert_shapes(made, kind)
        _assert_zero_mean(made, target, q, key)
    else:
        with pytest.raises(ValueError, match=r"\w") as caught:
            Controlled(name).init(target, q)
        assert str(caught.value) == reason


def _assert_zero_mean(
    made: AbstractControlVariate, target: Target, q: AbstractFamily, key: Array
) -> None:
    """The columns have mean zero at the start and with what was learned from some steps."""

    @eqx.filter_jit
    def columns(q: AbstractFamily, key: Array) -> tuple[Array, Array]:
        def evaluate(state: object, count: int, key: Array) -> tuple[object, Array]:
            e = q.base.sample((count, q.base_dim), q.dtype, key=key)
            sample = take_sample(target, q, Sampled(), e)
            learned = made.update(state, target, q, sample, key=key)
            return learned, made.columns(state, target, q, sample, key=key)

        key_fresh, key_learned, key_steps = jr.split(key, 3)
        start = made.init(target, q)
        learned, _ = jax.lax.scan(
            lambda state, k: (evaluate(state, 8, k)[0], None), start, jr.split(key_steps, UPDATES)
        )
        fresh = evaluate(start, REPLICATIONS, key_fresh)[1]
        return fresh, evaluate(learned, REPLICATIONS, key_learned)[1]

    fresh, learned = columns(q, key)
    assert_mean(fresh, 0.0)
    assert_mean(learned, 0.0)
    assert np.max(np.std(learned, axis=0)) > 0


def _assert_shapes(made: AbstractControlVariate, kind: str) -> None:
    """(draws, params, columns) in the family's precision, and a state that keeps its structure."""
    for dtype in (jnp.float32, jnp.float64):
        target, q = target_2d("curved", dtype), cast(family(kind, 2, small=True), dtype)
        params = sum(x.size for x in jax.tree.leaves(eqx.filter(q, eqx.is_inexact_array)))
        state = made.init(target, q)
        sample = eqx.filter_eval_shape(
            take_sample, target, q, Sampled(), jnp.zeros((3, q.base_dim), dtype)
        )
        wanted = {"target": target, "q": q, "sample": sample, "key": jr.key(0)}
        columns = eqx.filter_eval_shape(made.columns, state, **wanted)
        assert columns.shape[:2] == (3, params)
        assert columns.dtype == dtype
        after = eqx.filter_eval_shape(made.update, state, **wanted)
        kept = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (state, after)]
        assert kept[0] == kept[1]
        assert made.hessian_products(q) >= 0
