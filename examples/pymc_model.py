"""A PyMC model as it is: names, dims and coords come back, and ArviZ summarises them."""

import jax
import numpy as np
import pymc as pm

import quietgrad as qg

# %% Radon-like data: houses in five counties.
rng = np.random.default_rng(0)
county = np.repeat(np.arange(5), [4, 9, 20, 6, 11])
floor = rng.integers(0, 2, county.size)
radon = np.array([1.2, 0.8, 1.6, 1.0, 1.3])[county] - 0.6 * floor + 0.5 * rng.normal(size=county.size)

# %% Varying intercepts.
with pm.Model(coords={"county": ["Aitkin", "Anoka", "Becker", "Brown", "Cass"]}) as model:
    mean = pm.Normal("mean", 0, 5)
    spread = pm.HalfNormal("spread", 1)
    unit = pm.Normal("unit", 0, 1, dims="county")
    intercept = pm.Deterministic("intercept", mean + spread * unit, dims="county")
    slope = pm.Normal("slope", 0, 1)
    noise = pm.HalfNormal("noise", 1)
    pm.Normal("radon", intercept[county] + slope * floor, noise, observed=radon)

# %% The fit, and whether to believe it.
result = qg.fit(qg.Target.from_pymc(model), "full-rank", key=jax.random.key(0))
print(result.diagnose())

# %% A table in the model's own names.
print(result.summary(2000, var_names=["mean", "spread", "intercept", "slope", "noise"]))
