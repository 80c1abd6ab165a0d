"""auto's optimiser: Adam that survives gradients which are not finite or far too long."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from quietgrad.solvers.guarded_adam import guarded_adam as make_rule


def guarded_adam(rate: float) -> Any:
    return make_rule(rate)


@pytest.mark.parametrize("size", [1.0, 1e-8])
def test_guarded_adam_is_adam_on_well_behaved_gradients(size):
    """Those near an optimum too, which are so small that Adam steps less far."""
    params = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(0.5)}
    ours, plain = guarded_adam(0.05), optax.adam(0.05)
    ours_state, plain_state = ours.init(params), plain.init(params)
    ours_params = plain_params = params
    for t in range(15):
        grad = jax.tree.map(lambda x, t=t: size * jnp.sin(x + t), ours_params)
        update, ours_state = ours.update(grad, ours_state)
        ours_params = optax.apply_updates(ours_params, update)
        update, plain_state = plain.update(grad, plain_state)
        plain_params = optax.apply_updates(plain_params, update)
    for ours_leaf, plain_leaf in zip(*map(jax.tree.leaves, (ours_params, plain_params)), strict=True):
        np.testing.assert_allclose(ours_leaf, plain_leaf, rtol=1e-6)


def test_guarded_adam_skips_what_is_not_finite():
    rule = guarded_adam(0.1)
    params = jnp.ones(3)
    _, state = rule.update(jnp.ones(3), rule.init(params))
    update, after = rule.update(jnp.array([1.0, jnp.nan, jnp.inf]), state)
    assert jnp.all(jnp.isfinite(update))
    np.testing.assert_array_equal(after.mean, state.mean)
    assert after.taken == state.taken


def test_guarded_adam_scales_outliers_down():
    rule = guarded_adam(0.1)
    state = rule.init(jnp.ones(3))
    for _ in range(30):
        _, state = rule.update(jnp.ones(3), state)
    _, mild = rule.update(3.0 * jnp.ones(3), state)
    _, wild = rule.update(1e6 * jnp.ones(3), state)
    np.testing.assert_allclose(wild.mean, mild.mean, rtol=1e-5)
