"""Eight schools, centred and not centred: the same NumPyro model, and what each of them costs."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.reparam import LocScaleReparam

import quietgrad as qg

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


# %% As it is usually written.
def schools(effect, error):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    std = numpyro.sample("std", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(effect)):
        theta = numpyro.sample("theta", dist.Normal(mean, std))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


# %% Not centred: theta = mean + std * unit, by NumPyro's own handler.
not_centred = numpyro.handlers.reparam(schools, config={"theta": LocScaleReparam(0.0)})

for name, model in (("centred", schools), ("not centred", not_centred)):
    target = qg.Target.from_numpyro(model, EFFECT, ERROR)
    result = qg.fit(target, "full-rank", key=jax.random.key(0))
    diagnosis = result.diagnose()
    draws = result.sample(jax.random.key(1), 4000)
    print(f"{name}: ELBO {result.elbo:.2f} ± {result.elbo_error:.2f}, {diagnosis.verdict}")
    print(f"  std between schools: {np.mean(draws['std']):.2f} ± {np.std(draws['std']):.2f}")
    print(f"  k-hat {diagnosis.khat:.2f}: {diagnosis.reasons[0]}")
