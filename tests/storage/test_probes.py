"""Whether a target is the one that was fitted: by its log density at every stored draw."""

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.results.saving import _probes, check_same


def test_a_density_that_differs_at_one_draw_only_is_another_model():
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=2)
    q = qg.MeanField(jnp.zeros(2), jnp.zeros(2))
    stored = _probes(target, q)
    assert stored is not None
    check_same(target, q, stored)
    with pytest.raises(ValueError, match="not the target that was fitted"):
        check_same(target, q, np.concatenate([stored[:-1], stored[-1:] + 1.0]))
