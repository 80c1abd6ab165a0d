"""What an estimator says of itself: that it is biased, and that it is silent at the optimum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, excess
from subjects import family, target_2d

import quietgrad as qg
from quietgrad.estimators.samplers.rqmc import from_digits
from quietgrad.families.bases import Normal

TOLD = {
    "in-sample beta": (lambda: qg.estimator("quadcv", beta="in-sample"), True),
    "lagged beta": (lambda: qg.estimator("quadcv"), False),
    "in-sample Stein weights": (lambda: qg.estimator("zvcv-gd"), True),
    "leave-one-out weights of independent draws": (lambda: qg.estimator("zvcv"), False),
    "leave-one-out weights of quasi-random draws": (
        lambda: qg.Pathwise(sampler="rqmc", weights="stein", draws=8),
        True,
    ),
    "uniform weights of quasi-random draws": (lambda: qg.estimator("rqmc"), False),
}


@pytest.mark.parametrize("name", TOLD)
def test_bias_is_told(name):
    make, biased = TOLD[name]
    assert make().biased is biased


@pytest.mark.parametrize(("beta", "biased"), [("in-sample", True), ("lagged", False)])
def test_beta_from_the_same_draws_moves_the_mean(beta, biased, key):
    """Two draws and a quadratic learned on them: the mean is that of the plain estimator, or not."""
    target, q = target_2d("curved"), family("mean-field", 2, small=True)
    made, plain = qg.estimator("quadcv", beta=beta, draws=2, rate=0.1), qg.estimator("nocv", draws=2)

    @eqx.filter_jit
    def gaps(keys):
        def step(state, key):
            return made.step(target, q, state, key=key)[1], None

        learned, _ = jax.lax.scan(step, made.init(target, q), jr.split(jr.key(1), 200))

        def gap(key):
            ours = made.step(target, q, learned, key=key)[0].grad
            theirs = plain.step(target, q, plain.init(target, q), key=key)[0].grad
            return ravel_pytree(ours)[0] - ravel_pytree(theirs)[0]

        return jax.vmap(gap)(keys)

    found = gaps(jr.split(key, 4000))
    if biased:
        assert np.max(excess(found, 0.0)) > 5
    else:
        assert_mean(found, 0.0)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["mean-field", "full-rank", "low-rank"])
def test_quiet_is_silent_where_q_is_the_posterior(kind):
    """Not small on average: nothing, draw by draw, but rounding."""
    q = family(kind, 3, small=True)
    target = qg.Target.from_logdensity(lambda z: q.log_prob(z[None, :])[0], dim=3)
    made = qg.estimator("quiet")
    state = made.init(target, q)
    grad = eqx.filter_jit(made.step)(target, q, state, key=jr.key(0))[0].grad
    # Rounding of some hundreds of operations on numbers of the size of one over the smallest scale.
    largest = float(jnp.max(jnp.abs(ravel_pytree(eqx.filter(q, eqx.is_inexact_array))[0])))
    bound = 1000 * np.finfo(float).eps * np.exp(2 * largest)
    assert np.max(np.abs(np.asarray(ravel_pytree(grad)[0]))) < bound


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_no_digits_lead_to_an_infinite_draw(dtype):
    ends = jnp.asarray([0, 1, 2**31 - 1, 2**31, 2**32 - 1], jnp.uint32)
    assert np.all(np.isfinite(from_digits(ends, Normal(), dtype)))
