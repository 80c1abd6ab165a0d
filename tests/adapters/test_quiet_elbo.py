"""QuietELBO in NumPyro's own loop: the gradient of Trace_ELBO in the mean, with less noise."""

# NumPyro types what it samples as anything like an array, which has no product.
# pyright: reportOperatorIssue=false

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO, autoguide

from quietgrad.adapters.numpyro import QuietELBO

ROWS, INPUTS, REPEATS = 40, 4, 2500
NOISE = np.random.default_rng(0)
X = jnp.asarray(NOISE.normal(size=(ROWS, INPUTS)))
Y = jnp.asarray((X @ jnp.array([1.0, -1.0, 0.5, 0.0]) + NOISE.logistic(size=ROWS) > 0).astype(float))


def regression(x, y):
    std = numpyro.sample("std", dist.HalfNormal(1.0))
    with numpyro.plate("inputs", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0.0, std))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def by_hand(x, y):
    """One site is not symmetric, and another leans on it and has a transform that is trained."""
    positive = constraints.positive
    shape = numpyro.param("shape", 3.0, constraint=positive)
    std = numpyro.sample("std", dist.Gamma(shape, numpyro.param("rate", 4.0, constraint=positive)))
    loc = numpyro.param("loc", jnp.linspace(-0.5, 0.5, x.shape[1]))
    scale = numpyro.param("scale", 0.3 * jnp.ones(x.shape[1]), constraint=positive)
    moved = dist.transforms.AffineTransform(loc * std, scale)
    with numpyro.plate("inputs", x.shape[1]):
        base = dist.Normal(jnp.zeros(x.shape[1]), 1.0)
        numpyro.sample("w", dist.TransformedDistribution(base, moved))


GUIDES = {
    "normal": lambda: autoguide.AutoNormal(regression, init_scale=0.3),
    "diagonal": lambda: autoguide.AutoDiagonalNormal(regression, init_scale=0.3),
    "multivariate": lambda: autoguide.AutoMultivariateNormal(regression, init_scale=0.3),
    "low-rank": lambda: autoguide.AutoLowRankMultivariateNormal(regression, init_scale=0.3, rank=2),
    "by-hand": lambda: by_hand,
}


def parameters(svi):
    """Those of a first state, unconstrained."""
    return svi.optim.get_params(svi.init(jr.key(0), X, Y).optim_state)


def many_gradients(svi, loss, flat, back, key):
    """Losses and their gradients in the unconstrained parameters, from many keys."""

    def one(key):
        def value(flat):
            return loss.loss(key, svi.constrain_fn(back(flat)), svi.model, svi.guide, X, Y)

        return jax.value_and_grad(value)(flat)

    return jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500))(jr.split(key, REPEATS))


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", GUIDES)
def test_gradient_is_trace_elbos_in_the_mean(name, key):
    svi = SVI(regression, GUIDES[name](), optax.adam(0.05), Trace_ELBO())
    flat, back = ravel_pytree(jax.jit(parameters, static_argnums=0)(svi))
    flat = flat + 0.1 * np.random.default_rng(1).normal(size=flat.shape)
    key_quiet, key_plain = jr.split(key)
    quiet = many_gradients(svi, QuietELBO(num_particles=2), flat, back, key_quiet)
    plain = many_gradients(svi, Trace_ELBO(num_particles=2), flat, back, key_plain)
    for ours, theirs in zip(quiet, plain, strict=True):
        gap = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
        error = np.sqrt((np.var(ours, axis=0) + np.var(theirs, axis=0)) / REPEATS)
        assert np.all(np.abs(gap) < 5 * error + 1e-9)


def logistic_regression(x, y):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


@pytest.mark.turns(2)
@pytest.mark.parametrize("guide", [autoguide.AutoNormal, autoguide.AutoMultivariateNormal])
def test_noise_near_the_optimum_is_a_fifth_or_less(guide, key):
    """Under NumPyro's own loop, and at the answer it comes to."""
    schedule = optax.cosine_decay_schedule(0.1, 500)
    svi = SVI(logistic_regression, guide(logistic_regression), optax.adam(schedule), QuietELBO(2))
    answer = svi.run(key, 500, X, Y, progress_bar=False)
    flat, back = ravel_pytree(svi.optim.get_params(answer.state.optim_state))
    variance = {}
    for loss in (QuietELBO(num_particles=2), Trace_ELBO(num_particles=2)):
        variance[type(loss)] = np.var(many_gradients(svi, loss, flat, back, key)[1], axis=0).sum()
    assert variance[QuietELBO] < variance[Trace_ELBO] / 5


def test_one_particle_and_odd_numbers_work(key):
    guide = autoguide.AutoDiagonalNormal(logistic_regression)
    svi = SVI(logistic_regression, guide, optax.adam(0.1), QuietELBO())
    params = svi.get_params(svi.init(key, X, Y))
    losses = jax.jit(
        lambda: [QuietELBO(n).loss(key, params, svi.model, svi.guide, X, Y) for n in (1, 3)]
    )()
    assert np.all(np.isfinite(losses))


def test_what_cannot_be_reparametrised_is_refused(key):
    def model():
        numpyro.sample("n", dist.Bernoulli(0.5))

    with pytest.raises(ValueError, match="'n' of the guide .* has no reparametrised draws"):
        QuietELBO().loss(key, {}, model, model)
