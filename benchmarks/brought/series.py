"""Time: levels, volatility, autoregression, changing slopes, change points and an ODE."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from scipy.integrate import solve_ivp

from .languages import Numpyro


def _level():
    rng = np.random.default_rng(331)
    return 10 + np.cumsum(0.4 * rng.normal(size=60)) + 0.7 * rng.normal(size=60)


def local_level(y):
    """State space: a level that walks, centred, observed with noise."""
    start = numpyro.sample("start", dist.Normal(10, 5))
    std_level = numpyro.sample("std_level", dist.HalfNormal(1))
    std_y = numpyro.sample("std_y", dist.HalfNormal(1))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(std_level, y.size))
    numpyro.sample("y", dist.Normal(start + walk, std_y), obs=y)


def local_level_easy(y):
    """The same, in units of the walk's scale."""
    start = numpyro.sample("start", dist.Normal(10, 5))
    std_level = numpyro.sample("std_level", dist.HalfNormal(1))
    std_y = numpyro.sample("std_y", dist.HalfNormal(1))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([y.size]).to_event(1))
    walk = numpyro.deterministic("walk", std_level * jnp.cumsum(raw))
    numpyro.sample("y", dist.Normal(start + walk, std_y), obs=y)


def _daily():
    rng = np.random.default_rng(332)
    log_vol = -1 + np.cumsum(0.12 * rng.normal(size=120))
    return np.exp(log_vol) * rng.standard_t(8, size=120)


def stochastic_volatility(y):
    """Stochastic volatility: a centred random walk of the log scale, Student t returns."""
    step = numpyro.sample("step", dist.Exponential(20.0))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(step, y.size))
    numpyro.sample("y", dist.StudentT(nu, loc=0.0, scale=jnp.exp(walk)), obs=y)


def stochastic_volatility_easy(y):
    """The same, in units of the walk's scale."""
    step = numpyro.sample("step", dist.Exponential(20.0))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([y.size]).to_event(1))
    walk = numpyro.deterministic("walk", step * jnp.cumsum(raw))
    numpyro.sample("y", dist.StudentT(nu, loc=0.0, scale=jnp.exp(walk)), obs=y)


def _autoregressive():
    rng = np.random.default_rng(333)
    y = np.zeros(120)
    for t in range(2, 120):
        y[t] = 0.5 + 0.5 * y[t - 1] + 0.25 * y[t - 2] + 0.8 * rng.normal()
    return y


def autoregression(y):
    """AR(2) with intercept, written as a scan over conditioned values."""
    y = jnp.asarray(y)
    a = numpyro.sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    constant = numpyro.sample("constant", dist.Normal(0, 1))
    std = numpyro.sample("std", dist.HalfNormal(1))

    def step(carry, _):
        before, last = carry
        now = numpyro.sample("y", dist.Normal(constant + a[0] * last + a[1] * before, std))
        return (last, now), now

    with numpyro.handlers.condition(data={"y": y[2:]}):
        scan(step, (y[0], y[1]), jnp.arange(y.size - 2))


def _changing():
    rng = np.random.default_rng(334)
    x = rng.normal(size=50)
    slope = 1 + np.cumsum(0.25 * rng.normal(size=50))
    return x, 0.5 + slope * x + 0.4 * rng.normal(size=50)


def changing_slope(x, y):
    """Regression whose slope walks over time, non-centred by a cumulative sum."""
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    step = numpyro.sample("step", dist.HalfCauchy(0.5))
    std = numpyro.sample("std", dist.HalfCauchy(1))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([x.size]).to_event(1))
    first = numpyro.sample("first", dist.Normal(0, 2))
    slope = first + step * jnp.cumsum(raw)
    numpyro.sample("y", dist.Normal(intercept + slope * x, std), obs=y)


def _disasters():
    rng = np.random.default_rng(335)
    return rng.poisson(np.where(np.arange(100) < 41, 3.0, 1.0))


def change_point(y):
    """Counts whose rate changes at an unknown, continuous time: a steep sigmoid."""
    when = numpyro.sample("when", dist.Uniform(0.0, 1.0 * y.size))
    early = numpyro.sample("early", dist.Exponential(0.5))
    late = numpyro.sample("late", dist.Exponential(0.5))
    share = jax.nn.sigmoid(jnp.arange(y.size) - when)
    numpyro.sample("y", dist.Poisson(early * (1 - share) + late * share), obs=y)


def _solve(theta, start, times, substeps=8):
    """Log numbers of hares and lynxes by the classical Runge-Kutta method, at equidistant times."""
    h = (times[1] - times[0]) / substeps

    def slope(z):
        prey, predator = jnp.exp(z)
        return jnp.stack([
            theta[0] - theta[1] * predator,
            -theta[2] + theta[3] * prey,
        ])  # fmt: skip

    def small(_, z):
        k1 = slope(z)
        k2 = slope(z + h / 2 * k1)
        k3 = slope(z + h / 2 * k2)
        k4 = slope(z + h * k3)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def step(z, _):
        z = jax.lax.fori_loop(0, substeps, small, z)
        return z, z

    _, path = jax.lax.scan(step, start, None, length=len(times) - 1)
    return jnp.concatenate([start[None], path])


def _lynxes():
    rng = np.random.default_rng(336)
    times = np.arange(0.0, 20.0, 1.0)
    found = solve_ivp(
        lambda t, z: [(0.55 - 0.028 * z[1]) * z[0], (-0.8 + 0.024 * z[0]) * z[1]],
        (0.0, 19.0), [30.0, 5.0], t_eval=times, rtol=1e-8,
    )  # fmt: skip
    path = found.y.T
    return times, path * np.exp(0.2 * rng.normal(size=path.shape))


def predator_prey(times, y):
    """Lotka-Volterra equations, lognormal noise, truncated normal rates."""
    z_init = numpyro.sample("z_init", dist.LogNormal(jnp.log(10.0), 1).expand([2]).to_event(1))
    theta = numpyro.sample(
        "theta",
        dist.TruncatedNormal(
            low=0.0, loc=jnp.array([1.0, 0.05, 1.0, 0.05]), scale=jnp.array([0.2, 0.01, 0.2, 0.01])
        ).to_event(1),
    )
    log_path = _solve(theta, jnp.log(z_init), times)
    sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.LogNormal(log_path, sigma), obs=y)


MODELS = {
    "local-level": lambda: Numpyro(local_level, (_level(),), easy=local_level_easy, accept=0.95),
    "stochastic-volatility": lambda: Numpyro(
        stochastic_volatility, (_daily(),), easy=stochastic_volatility_easy, accept=0.95
    ),
    "autoregression": lambda: Numpyro(autoregression, (_autoregressive(),)),
    "changing-slope": lambda: Numpyro(changing_slope, _changing(), accept=0.95),
    "change-point": lambda: Numpyro(change_point, (_disasters(),), accept=0.95),
    "predator-prey": lambda: Numpyro(predator_prey, _lynxes()),
}
