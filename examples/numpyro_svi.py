"""Existing NumPyro SVI code with a quieter loss: one name changes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import Adam

from quietgrad import QuietELBO

rng = np.random.default_rng(0)
x = jnp.asarray(rng.normal(size=(200, 6)))
y = jnp.asarray((x @ rng.normal(size=6) + rng.logistic(size=200) > 0).astype(float))


def model(x, y):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


# %% The same loop with both losses, two particles each.
guide, answers = AutoNormal(model), {}
for loss in (Trace_ELBO(num_particles=2), QuietELBO(num_particles=2)):
    svi = SVI(model, guide, Adam(0.03), loss)
    answers[type(loss).__name__] = svi.run(jax.random.key(0), 500, x, y, progress_bar=False)

# %% How good each answer is: the same thousand particles judge both.
judge = Trace_ELBO(num_particles=1000)
for name, answer in answers.items():
    elbo = -judge.loss(jax.random.key(1), answer.params, model, guide, x, y)
    print(f"{name:10} ELBO after 500 steps: {elbo:.2f}")

# %% Why: the noise of a gradient at the answer.
params = answers["QuietELBO"].params
for loss in (Trace_ELBO(num_particles=2), QuietELBO(num_particles=2)):

    def gradient(key, loss=loss):
        return ravel_pytree(jax.grad(lambda p: loss.loss(key, p, model, guide, x, y))(params))[0]

    noise = jnp.var(jax.lax.map(gradient, jax.random.split(jax.random.key(2), 200)), axis=0).sum()
    print(f"{type(loss).__name__:10} variance of its gradient: {noise:.3g}")
