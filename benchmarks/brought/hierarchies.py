"""Groups with scales of their own: schools, counties, batters, raters and items."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam
from scipy.special import betaln, expit

from .languages import Numpyro

# Rubin (1981): effects of coaching and their standard errors.
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
# Efron and Morris (1975): hits of 18 batters in their first 45 times at bat.
HITS = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
AT_BAT = np.full(18, 45)


def schools_centred(effect, error):
    """Eight schools, centred, half-Cauchy scale: a neck towards no variation."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=effect)


def schools_noncentred(effect, error):
    """Eight schools, non-centred, half-Cauchy scale."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mu + tau * raw, error), obs=effect)


def _houses():
    rng = np.random.default_rng(321)
    county = np.repeat(np.arange(25), rng.integers(2, 14, size=25))
    uranium = rng.normal(size=25)
    floor = (rng.uniform(size=county.size) < 0.3).astype(float)
    mean = 1.3 + 0.4 * uranium + 0.3 * rng.normal(size=25)
    return county, floor, uranium, mean[county] - 0.7 * floor + 0.7 * rng.normal(size=county.size)


def radon(county, floor, uranium, y):
    """Radon: centred intercepts and slopes of counties, half-Cauchy scales."""
    mu_a = numpyro.sample("mu_a", dist.Normal(0, 5))
    gamma = numpyro.sample("gamma", dist.Normal(0, 1))
    sigma_a = numpyro.sample("sigma_a", dist.HalfCauchy(1))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 1))
    sigma_b = numpyro.sample("sigma_b", dist.HalfCauchy(1))
    with numpyro.plate("county", 25):
        a = numpyro.sample("a", dist.Normal(mu_a + gamma * uranium, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("house", county.size):
        numpyro.sample("y", dist.Normal(a[county] + b[county] * floor, sigma), obs=y)


def baseball_pareto(at_bat, hits):
    """Batters, partially pooled: Beta with a Pareto prior on its concentration."""
    mean = numpyro.sample("mean", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
    with numpyro.plate("player", at_bat.size):
        phi = numpyro.sample("phi", dist.Beta(mean * kappa, (1 - mean) * kappa))
        numpyro.sample("hits", dist.Binomial(at_bat, probs=phi), obs=hits)


def baseball_moments():
    """Mean, log concentration (by quadrature) and rates (Beta given both) of the batters."""
    logit, log_kappa = np.meshgrid(np.linspace(-4, 2, 601), np.linspace(1e-3, 30, 3001), indexing="ij")
    mean, kappa = expit(logit)[..., None], np.exp(log_kappa)[..., None]
    a, b = mean * kappa, (1 - mean) * kappa
    log_p = np.sum(betaln(a + HITS, b + AT_BAT - HITS) - betaln(a, b), axis=-1)
    # The uniform prior of the mean by its logit, the Pareto prior of kappa by its logarithm.
    log_p += np.log(mean * (1 - mean))[..., 0] - 1.5 * log_kappa
    p = np.exp(log_p - log_p.max())
    p /= p.sum()

    def moments(first, variance=0.0):
        average = np.tensordot(p, first, 2)
        return average, np.sqrt(np.tensordot(p, variance + (first - average) ** 2, 2))

    rate = (a + HITS) / (kappa + AT_BAT)
    rates = moments(rate, rate * (1 - rate) / (kappa + AT_BAT + 1))
    return {"mean": moments(mean[..., 0]), "kappa": moments(log_kappa), "phi": rates}


def baseball_logit(at_bat, hits):
    """Batters, partially pooled on the logit scale, centred, half-Cauchy scale."""
    loc = numpyro.sample("loc", dist.Normal(-1, 1))
    scale = numpyro.sample("scale", dist.HalfCauchy(1))
    with numpyro.plate("player", at_bat.size):
        alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
        numpyro.sample("hits", dist.Binomial(at_bat, logits=alpha), obs=hits)


def _ratings():
    rng = np.random.default_rng(322)
    rater, item = np.repeat(np.arange(12), 15), np.tile(np.arange(15), 12)
    keep = rng.uniform(size=rater.size) < 0.7
    rater, item = rater[keep], item[keep]
    y = 3 + 0.8 * rng.normal(size=12)[rater] + 0.5 * rng.normal(size=15)[item]
    return rater, item, y + 0.6 * rng.normal(size=rater.size)


def crossed(rater, item, y):
    """Crossed effects of raters and items, centred."""
    mean = numpyro.sample("mean", dist.Normal(0, 10))
    std_rater = numpyro.sample("std_rater", dist.HalfNormal(2))
    std_item = numpyro.sample("std_item", dist.HalfNormal(2))
    std = numpyro.sample("std", dist.Exponential(1))
    with numpyro.plate("raters", 12):
        u = numpyro.sample("u", dist.Normal(0, std_rater))
    with numpyro.plate("items", 15):
        v = numpyro.sample("v", dist.Normal(0, std_item))
    numpyro.sample("y", dist.Normal(mean + u[rater] + v[item], std), obs=y)


def _deaths():
    rng = np.random.default_rng(323)
    age, area = (x.ravel() for x in np.meshgrid(np.arange(8), np.arange(12), indexing="ij"))
    population = rng.integers(500, 5000, size=age.size)
    log_rate = -5 + 0.5 * age + 0.3 * rng.normal(size=12)[area]
    return age, area, population, rng.poisson(population * np.exp(np.minimum(log_rate, -0.7)))


def mortality(age, area, population, deaths):
    """Deaths by age and area: a random walk over ages, areas around zero, binomial counts."""
    std_age = numpyro.sample("std_age", dist.HalfNormal(1))
    std_area = numpyro.sample("std_area", dist.HalfNormal(1))
    start = numpyro.sample("start", dist.Normal(-5, 2))
    with numpyro.plate("area", 12):
        s = numpyro.sample("s", dist.Normal(0, std_area))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(std_age, 8))
    numpyro.sample("deaths", dist.Binomial(population, logits=start + walk[age] + s[area]), obs=deaths)


def _cafes():
    rng = np.random.default_rng(324)
    chol = np.linalg.cholesky(np.array([[1.0, -0.35], [-0.35, 0.25]]))
    effect = np.array([3.5, -1.0]) + rng.normal(size=(15, 2)) @ chol.T
    cafe, afternoon = np.repeat(np.arange(15), 10), np.tile([0.0, 1.0], 75)
    y = effect[cafe, 0] + effect[cafe, 1] * afternoon + 0.5 * rng.normal(size=150)
    return cafe, afternoon, y


def correlated_slopes(cafe, afternoon, y):
    """Varying intercepts and slopes with a Cholesky correlation (LKJ), centred."""
    a = numpyro.sample("a", dist.Normal(5, 2))
    b = numpyro.sample("b", dist.Normal(-1, 0.5))
    std_cafe = numpyro.sample("std_cafe", dist.Exponential(1).expand([2]).to_event(1))
    std = numpyro.sample("std", dist.Exponential(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    scale_tril = std_cafe[:, None] * chol
    with numpyro.plate("cafe", 15):
        own = dist.MultivariateNormal(jnp.stack([a, b]), scale_tril=scale_tril)
        effect = numpyro.sample("effect", own)
    mean = effect[cafe, 0] + effect[cafe, 1] * afternoon
    numpyro.sample("wait", dist.Normal(mean, std), obs=y)


def funnel():
    """Neal's funnel, nine coordinates behind one log scale, centred."""
    v = numpyro.sample("v", dist.Normal(0, 3))
    numpyro.sample("x", dist.Normal(0, jnp.exp(v / 2)).expand([9]).to_event(1))


def _easy(model, *sites):
    return reparam(model, config={site: LocScaleReparam(0) for site in sites})


HOUSES, RATINGS, DEATHS, CAFES = _houses(), _ratings(), _deaths(), _cafes()
MODELS = {
    "schools-centred": lambda: Numpyro(
        schools_centred, (EFFECT, ERROR), easy=_easy(schools_centred, "theta"), accept=0.97
    ),
    "schools-noncentred": lambda: Numpyro(schools_noncentred, (EFFECT, ERROR), accept=0.97),
    "radon": lambda: Numpyro(radon, HOUSES, easy=_easy(radon, "a", "b"), accept=0.97),
    "baseball-pareto": lambda: Numpyro(
        baseball_pareto, (AT_BAT, HITS), by_log=("kappa",), exact=baseball_moments
    ),
    "baseball-logit": lambda: Numpyro(
        baseball_logit, (AT_BAT, HITS), easy=_easy(baseball_logit, "alpha"), accept=0.95
    ),
    "crossed": lambda: Numpyro(crossed, RATINGS),
    "mortality": lambda: Numpyro(mortality, DEATHS),
    "correlated-slopes": lambda: Numpyro(correlated_slopes, CAFES, accept=0.95),
    "funnel": lambda: Numpyro(
        funnel,
        exact=lambda: {"v": (0.0, 3.0), "x": (np.zeros(9), np.full(9, np.exp(9 / 4)))},
    ),
}
