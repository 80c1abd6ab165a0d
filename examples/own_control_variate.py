"""A control variate of one's own: f~(z) = a'z with a running mean a of the target's gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp

import quietgrad as qg
from quietgrad.estimators import Controlled
from quietgrad.estimators.control_variates import AbstractControlVariate
from quietgrad.estimators.control_variates.control_variate import pull_each


# %% One column with mean zero for every parameter, whatever a is: C(e) = J(0)'a - J(e)'a.
class LinearColumn(AbstractControlVariate):
    """Exact for a linear target once a is learned."""

    decay: float = 0.9

    def refuses(self, target, q):
        return None if isinstance(q, qg.MeanField) else "this one is written for mean-field families"

    def init(self, target, q):
        return jnp.zeros(q.dim, q.dtype)

    def columns(self, state, target, q, sample, *, key):
        slope = jnp.broadcast_to(state, sample.z.shape)
        mean = pull_each(q, jnp.zeros_like(sample.e), slope)
        return (mean - pull_each(q, sample.e, slope))[:, :, None]

    def update(self, state, target, q, sample, *, key):
        return self.decay * state + (1 - self.decay) * jnp.mean(sample.slope, axis=0)


# %% A logistic regression, and a q that is still far from its posterior.
x = jax.random.normal(jax.random.key(0), (50, 3))
y = (x @ jnp.array([2.0, -1.0, 0.5]) > 0).astype(x.dtype)
target = qg.Target(
    lambda z: -0.5 * z @ z, lambda z, d: d[1] * (d[0] @ z) - jnp.logaddexp(d[0] @ z, 0.0), (x, y), dim=3
)
q = qg.MeanField(jnp.zeros(3), jnp.full(3, -1.0))

# %% Its coefficients come from earlier draws, which keeps the gradient unbiased.
estimator = Controlled(LinearColumn(), source="lagged", per_dimension=True, draws=10)
step, state = eqx.filter_jit(estimator.step), estimator.init(target, q)
for key in jax.random.split(jax.random.key(1), 100):
    _, state = step(target, q, state, key=key)

# %% What it is worth: variance relative to the plain estimator, on the same draws.
noise = qg.variance_ratio(target, q, estimator, state=state, repeats=1000, key=jax.random.key(2))
for block, ratio in noise.blocks.items():
    print(f"variance of the gradient in {block}: {float(ratio):.2f} of the plain one")
