"""A fit first, then NUTS: starting points and metric from the fit save NumPyro's warm-up.

The posterior is a logistic regression whose predictors share a factor and have scales from 0.1 to 10.
What counts is the number of gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import quietgrad as qg

CHAINS, DRAWS, DIM = 2, 200, 6

rng = np.random.default_rng(0)
scales = np.geomspace(0.1, 10, DIM)
x = rng.normal(size=(200, DIM)) + 2 * rng.normal(size=(200, 1))
y = (rng.random(200) < 1 / (1 + np.exp(-x @ rng.normal(size=DIM) / np.sqrt(DIM)))).astype(float)
target = qg.Target(
    lambda z: -0.5 * jnp.sum((z * scales) ** 2),
    lambda z, data: data[1] * (data[0] @ z) - jnp.logaddexp(data[0] @ z, 0.0),
    (x * scales, y),
    dim=DIM,
)


def sample(name, warmup, start, **settings):
    """Warm up and sample; print gradients and the effective size of the worst coordinate."""
    kernel = NUTS(potential_fn=lambda z: -target.log_density(z), **settings)
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.warmup(jax.random.key(1), init_params=start, collect_warmup=True, extra_fields=("num_steps",))
    warming = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    mcmc.run(jax.random.key(2), extra_fields=("num_steps",))
    sampling = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    size = np.min(effective_sample_size(np.asarray(mcmc.get_samples(group_by_chain=True), float)))
    print(
        f"{name}: {warming:,} gradients to warm up, {sampling:,} to sample, effective size {size:,.0f}"
    )


# %% As usual, and from a fit with a warm-up that only adapts the step size.
sample("NUTS", 200, 0.1 * jax.random.normal(jax.random.key(0), (CHAINS, DIM)), dense_mass=True)
begin = qg.fit(target, "full-rank", key=jax.random.key(0)).for_nuts(chains=CHAINS)
sample("NUTS from the fit", 50, begin.points, **begin.numpyro)
