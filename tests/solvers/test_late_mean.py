"""The mean of late iterates: which ones it takes, and what it says of a run that only noise holds."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.solvers.steps import LEAST, Late
from quietgrad.status import Status


@pytest.mark.parametrize("looks", [11, 12, 16, 23, 24, 31, 40])
def test_it_is_that_of_the_last_half_or_a_little_more(looks):
    late = Late()
    for number in range(1, looks + 1):
        late = late.after({"a": jnp.asarray([float(number)]), "b": jnp.asarray(1.0)})
    found: Any = late.mean({"a": jnp.zeros(1), "b": jnp.zeros(())})
    begun = 2 ** int(np.log2(looks))
    first = begun if looks - begun + 1 >= LEAST else begun // 2
    np.testing.assert_allclose(found["a"], [np.mean(np.arange(first, looks + 1))])
    np.testing.assert_allclose(found["b"], 1.0)


def test_few_looks_have_none():
    late = Late()
    for _ in range(LEAST - 1):
        late = late.after([jnp.zeros(1)])
    assert late.mean([jnp.zeros(1)]) is None


def of_many_scales(dim):
    scales = np.geomspace(0.3, 3.0, dim)
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z / scales) ** 2), dim=dim)
    # The mean is that of the iterates that were evaluated, so none may be left out on a busy machine.
    method = qg.Sgd("nocv", optax.adam(0.05), steps=1000, evaluate_every=20, by_clock=False)
    best = float(np.sum(np.log(scales))) + 0.5 * dim * np.log(2 * np.pi)
    return qg.fit(target, method=method, key=jr.key(0)), best


def test_noise_that_holds_a_run_is_told():
    """The steps of a constant rate keep it some nats below a best that the formula gives."""
    result, best = of_many_scales(500)
    assert result.elbo < best - 2
    assert result.status is Status.BUDGET
    assert "the noise of the steps keeps it there" in result.hint
    told = float(result.hint.split("but ")[1].split()[0])
    assert told == pytest.approx(best - result.elbo, rel=0.25)


def test_a_little_noise_is_none():
    result, best = of_many_scales(5)
    assert result.elbo > best - 0.5
    assert result.status is Status.CONVERGED, result.hint
