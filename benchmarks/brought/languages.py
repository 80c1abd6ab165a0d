"""The two languages that models come in: NumPyro functions and PyMC models, each with its own NUTS."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

from .model import Blocks, Brought, Chains

# A dense mass matrix of more coordinates than this costs more than it saves.
MOST_DENSE = 120


class Numpyro(Brought):
    """A NumPyro model: a function and its arguments."""

    language = "numpyro"

    def target(self):
        import quietgrad as qg

        return qg.Target.from_numpyro(self.model, *self.args, **self.kwargs)

    @functools.cached_property
    def _initialised(self) -> Any:
        from numpyro.infer.util import initialize_model

        return initialize_model(
            jr.key(0), self.model, model_args=self.args, model_kwargs=self.kwargs, dynamic_args=False
        )

    def log_density(self):
        potential = self._initialised.potential_fn
        flat, unravel = ravel_pytree(self._initialised.param_info.z)
        return lambda z: -potential(unravel(z)), flat.size

    def constrained(self, z):
        _, unravel = ravel_pytree(self._initialised.param_info.z)
        constrain = self._initialised.postprocess_fn
        found = jax.jit(jax.vmap(lambda z: constrain(unravel(z))))(jnp.asarray(z))
        return {name: np.asarray(value) for name, value in found.items()}

    def sample(self, seed, *, warmup, draws) -> Chains:
        from numpyro.infer import MCMC, NUTS

        chains = MCMC(NUTS(self.model), num_warmup=warmup, num_samples=draws, progress_bar=False)
        chains.run(jr.key(seed), *self.args, extra_fields=("diverging",), **self.kwargs)
        return _taken(chains)

    def blocks(self, seed, *, chains, warmup, draws) -> Blocks:
        from numpyro.infer import MCMC, NUTS, init_to_median

        kernel = NUTS(
            self.easy or self.model,
            dense_mass=self.log_density()[1] <= MOST_DENSE,
            target_accept_prob=self.accept,
            # Chains that start anywhere in (-2, 2) may stay where a model is flat.
            init_strategy=init_to_median(),
        )
        sampler = MCMC(
            kernel, num_warmup=warmup, num_samples=draws, num_chains=chains,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        keys = iter(jr.split(jr.key(seed), 1000))

        def block() -> Chains:
            sampler.run(next(keys), *self.args, extra_fields=("diverging",), **self.kwargs)
            sampler.post_warmup_state = sampler.last_state
            return _taken(sampler)

        return block


class Pymc(Brought):
    """A PyMC model: a function that builds it."""

    language = "pymc"

    def build(self, form: Callable[..., Any] | None = None) -> Any:
        """The model, made anew."""
        import pymc

        with pymc.Model() as model:
            (form or self.model)(*self.args, **self.kwargs)
        return model

    def target(self):
        import quietgrad as qg

        return qg.Target.from_pymc(self.build())

    def log_density(self):
        from pymc.sampling.jax import get_jaxified_logp

        model = self.build()
        start = model.initial_point()
        log_density = get_jaxified_logp(model, negative_logp=False)
        _, unravel = ravel_pytree([jnp.asarray(start[v.name]) for v in model.value_vars])
        return lambda z: log_density(unravel(z)), sum(np.size(value) for value in start.values())

    def constrained(self, z):
        from pymc.sampling.jax import get_jaxified_graph

        model = self.build()
        start = model.initial_point()
        _, unravel = ravel_pytree([jnp.asarray(start[v.name]) for v in model.value_vars])
        outputs = model.unobserved_value_vars
        run = get_jaxified_graph(inputs=model.value_vars, outputs=outputs)
        found = jax.jit(jax.vmap(lambda z: run(*unravel(z))))(jnp.asarray(z))
        return {v.name: np.asarray(x) for v, x in zip(outputs, found, strict=True)}

    def sample(self, seed, *, warmup, draws) -> Chains:
        return self._nuts(self.build(), seed, chains=1, warmup=warmup, draws=draws)

    def blocks(self, seed, *, chains, warmup, draws) -> Blocks:
        model, seeds = self.build(self.easy), iter(range(1000 * seed, 1000 * seed + 1000))

        def block() -> Chains:
            more = {"target_accept": self.accept, "nuts_kwargs": {"dense_mass": True}}
            return self._nuts(model, next(seeds), chains=chains, warmup=warmup, draws=draws, **more)

        return block

    def _nuts(
        self, model: Any, seed: int, *, chains: int, warmup: int, draws: int, **more: Any
    ) -> Chains:
        from pymc.sampling.jax import sample_numpyro_nuts

        with model:
            found = sample_numpyro_nuts(
                draws=draws, tune=warmup, chains=chains, random_seed=seed, progressbar=False,
                chain_method="vectorized", compute_convergence_checks=False, **more,
            )  # fmt: skip
        posterior = found.posterior
        divergent = int(np.sum(np.asarray(found.sample_stats["diverging"])))
        return Chains({str(k): np.asarray(v) for k, v in posterior.data_vars.items()}, divergent)


def _taken(chains: Any) -> Chains:
    draws = {k: np.asarray(v) for k, v in chains.get_samples(group_by_chain=True).items()}
    return Chains(draws, int(np.sum(chains.get_extra_fields()["diverging"])))
