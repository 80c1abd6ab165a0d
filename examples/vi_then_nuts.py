"""A fit first, then NUTS: starting points and metric from the fit save NumPyro's warm-up.

Run it with `python examples/vi_then_nuts.py`; it takes about a minute. Both runs draw as many samples
from the same posterior, a logistic regression with correlated predictors of very different scales. One
warms up as usual; the other starts from `result.for_nuts()` and only adapts its step size. What counts
is the number of gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import quietgrad as qg

CHAINS, DRAWS = 4, 500
USUAL_WARMUP, SHORT_WARMUP = 1000, 50


def posterior(rows: int = 500, dim: int = 30) -> qg.Target:
    """A logistic regression whose predictors share a common factor and have scales from 0.01 to 100."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, dim)) + 2 * rng.normal(size=(rows, 1))
    coefficients = rng.normal(size=dim) / np.sqrt(dim)
    y = rng.random(rows) < 1 / (1 + np.exp(-x @ coefficients))
    x = x * np.geomspace(0.01, 100, dim)

    def log_prior(z):
        return -0.5 * jnp.sum((z * np.geomspace(0.01, 100, dim)) ** 2)

    def log_likelihood(z, data):
        x, y = data
        return y * (x @ z) - jnp.logaddexp(x @ z, 0.0)

    return qg.Target(log_prior, log_likelihood, (jnp.asarray(x), jnp.asarray(y, float)), dim=dim)


def run(target: qg.Target, kernel: NUTS, warmup: int, start: jax.Array) -> None:
    """Warm up and sample; print gradients and effective sizes."""
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
    size = effective_sample_size(np.asarray(mcmc.get_samples(group_by_chain=True), float))
    print(f"  gradients to warm up {warming:>9,}")
    print(f"  gradients to sample  {sampling:>9,}")
    print(f"  effective size of the worst coordinate {np.min(size):,.0f} of {CHAINS * DRAWS:,}")


def main() -> None:
    """Both ways, one after the other."""
    target = posterior()

    def potential(z: jax.Array) -> jax.Array:
        return -target.log_density(z)

    print(f"NUTS with {USUAL_WARMUP:,} steps of warm-up")
    start = 0.1 * jax.random.normal(jax.random.key(0), (CHAINS, target.dim))
    run(target, NUTS(potential_fn=potential, dense_mass=True), USUAL_WARMUP, start)

    result = qg.fit(target, "mean-field", key=jax.random.key(0))
    print(f"\n{result}\n")
    begin = result.for_nuts(chains=CHAINS)
    print(f"NUTS from this fit, with {SHORT_WARMUP} steps of warm-up")
    run(target, NUTS(potential_fn=potential, **begin.numpyro), SHORT_WARMUP, begin.points)


if __name__ == "__main__":
    main()
