"""A PyMC model as it is: names, dims and coords come back, and ArviZ summarises them."""

import jax
import numpy as np
import pymc as pm

import quietgrad as qg

# %% Radon-like data: houses in five counties.
COUNTIES = ["Aitkin", "Anoka", "Becker", "Brown", "Cass"]
rng = np.random.default_rng(0)
county = np.repeat(np.arange(5), [14, 19, 30, 16, 21])
floor = rng.integers(0, 2, county.size)
radon = np.array([1.2, 0.8, 1.6, 1.0, 1.3])[county] - 0.6 * floor + 0.5 * rng.normal(size=county.size)

# %% An intercept for each county.
with pm.Model(coords={"county": COUNTIES, "house": np.arange(county.size)}) as model:
    intercept = pm.Normal("intercept", 1, 1, dims="county")
    slope = pm.Normal("slope", 0, 1)
    noise = pm.HalfNormal("noise", 1)
    pm.Normal("radon", intercept[county] + slope * floor, noise, observed=radon, dims="house")

# %% The fit, and whether to believe it.
result = qg.fit(qg.Target.from_pymc(model), "full-rank", key=jax.random.key(0))
print(result.diagnose())

# %% A table in the model's own names; `result.to_arviz()` has the draws behind it.
print(result.summary(2000))

# %% Does the model make data like these? The spread within a county, seen and predicted.
predicted = result.predictive(jax.random.key(1), draws=200)["radon"]
for at, name in enumerate(COUNTIES):
    seen, drawn = np.std(radon[county == at]), np.std(predicted[:, county == at], axis=1)
    print(f"{name:7} sd {seen:.2f}, predicted {drawn.mean():.2f} ± {drawn.std():.2f}")
