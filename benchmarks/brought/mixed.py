"""Mixtures, counts, proportions, tests and processes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import expit

from .languages import Numpyro


def _heights():
    rng = np.random.default_rng(361)
    return np.where(rng.uniform(size=120) < 0.35, rng.normal(-1.5, 0.6, 120), rng.normal(1.5, 1.0, 120))


def mixture_ordered(y):
    """Two normals with ordered means, weights on the simplex."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    base = dist.Normal(0, 3).expand([2]).to_event(1)
    ordered = dist.transforms.OrderedTransform()
    means = numpyro.sample("means", dist.TransformedDistribution(base, ordered))
    stds = numpyro.sample("stds", dist.HalfNormal(2).expand([2]).to_event(1))
    mixing = dist.Categorical(probs=weights)
    numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(means, stds)), obs=y)


def mixture_switching(y):
    """Two normals without an order: every answer has a copy with its labels exchanged."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    means = numpyro.sample("means", dist.Normal(0, 3).expand([2]).to_event(1))
    stds = numpyro.sample("stds", dist.HalfNormal(2).expand([2]).to_event(1))
    mixing = dist.Categorical(probs=weights)
    numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(means, stds)), obs=y)


def mixture_enumerated(y):
    """Two normals, each datum's component a discrete site that is summed out."""
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    low = numpyro.sample("low", dist.Normal(-2, 1))
    high = numpyro.sample("high", dist.Normal(2, 1))
    std = numpyro.sample("std", dist.LogNormal(0, 1))
    with numpyro.plate("data", y.size):
        which = numpyro.sample("which", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(jnp.where(which == 1, high, low), std), obs=y)


def _exchanged(draws):
    return [draws, {name: value[..., ::-1] for name, value in draws.items()}]


def _arrivals():
    rng = np.random.default_rng(362)
    x = rng.normal(size=(150, 2))
    y = rng.poisson(np.exp(0.8 + x @ [0.4, -0.3]))
    return x, np.where(rng.uniform(size=150) < 0.3, 0, y)


def zero_inflated(x, y):
    """Zero-inflated Poisson regression: a share of zeros besides the rate."""
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(a + x @ b)), obs=y)


def _overdispersed():
    rng = np.random.default_rng(363)
    x = rng.normal(size=(100, 2))
    rate = np.exp(1.2 + x @ [0.5, 0.3]) * rng.gamma(2.0, 0.5, size=100)
    return x, rng.poisson(rate)


def negative_binomial(x, y):
    """Negative binomial regression, half-Cauchy concentration."""
    a = numpyro.sample("a", dist.Normal(0, 5))
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    concentration = numpyro.sample("concentration", dist.HalfCauchy(3))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(a + x @ b), concentration), obs=y)


def proportions(y1, n1, y2, n2):
    """The difference of two proportions: two uniform rates and what they differ by."""
    p1 = numpyro.sample("p1", dist.Beta(1.0, 1.0))
    p2 = numpyro.sample("p2", dist.Beta(1.0, 1.0))
    numpyro.sample("y1", dist.Binomial(n1, p1), obs=y1)
    numpyro.sample("y2", dist.Binomial(n2, p2), obs=y2)
    numpyro.deterministic("difference", p1 - p2)


def dual_moon():
    """Dual moon: two curved modes that are mirror images."""
    x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    ring = 0.5 * ((jnp.linalg.norm(x) - 2) / 0.4) ** 2
    ends = -0.5 * ((x[0] + jnp.array([-2.0, 2.0])) / 0.6) ** 2
    numpyro.factor("moons", -ring + jax.scipy.special.logsumexp(ends))


def _answers():
    rng = np.random.default_rng(364)
    ability, difficulty = rng.normal(size=40), rng.normal(size=12)
    slope = np.exp(0.3 * rng.normal(size=12))
    odds = slope * (ability[:, None] - difficulty)
    return ((rng.uniform(size=odds.shape) < expit(odds)).astype(int),)


def item_response(y):
    """Two-parameter item response: abilities, difficulties and positive discriminations."""
    people, items = y.shape
    with numpyro.plate("items", items):
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 2))
        slope = numpyro.sample("slope", dist.LogNormal(0, 0.5))
    with numpyro.plate("people", people):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
    odds = slope * (ability[:, None] - difficulty)
    numpyro.sample("y", dist.Bernoulli(logits=odds), obs=y)


def _factors():
    rng = np.random.default_rng(365)
    u, v = rng.normal(size=(15, 2)), rng.normal(size=(12, 2))
    return (u @ v.T + 0.5 * rng.normal(size=(15, 12)),)


def factorisation(y):
    """A matrix of 15 by 12 as a product of rank two: rotations leave it as it is."""
    rows, columns = y.shape
    u = numpyro.sample("u", dist.Normal(0, 1).expand([rows, 2]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([columns, 2]).to_event(2))
    std = numpyro.sample("std", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(u @ v.T, std), obs=y)


def _rotated(draws):
    """Quarter turns of the two factors, which are enough for means of zero and equal sds."""
    copies, turn = [], np.array([[0.0, -1.0], [1.0, 0.0]])
    for times in range(4):
        matrix = np.linalg.matrix_power(turn, times)
        copies.append(dict(draws) | {name: draws[name] @ matrix for name in ("u", "v")})
    return copies


def _curve():
    rng = np.random.default_rng(366)
    x = np.sort(rng.uniform(0, 10, size=30))
    return x, np.sin(x) + 0.3 * rng.normal(size=30)


def _kernel(x, amplitude, length):
    return amplitude**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)


def gp_regression(x, y):
    """Gaussian process regression: amplitude, length and noise, lognormal."""
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0, 1))
    length = numpyro.sample("length", dist.LogNormal(0, 1))
    noise = numpyro.sample("noise", dist.LogNormal(-1, 1))
    covariance = _kernel(x, amplitude, length) + (noise**2 + 1e-4) * jnp.eye(x.size)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.size), covariance), obs=y)


def _labels():
    rng = np.random.default_rng(367)
    x = np.sort(rng.uniform(0, 10, size=40))
    return x, (rng.uniform(size=40) < expit(2.5 * np.sin(x))).astype(int)


def gp_classification(x, y):
    """Gaussian process classification: a latent function, non-centred, and its hyperparameters."""
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2))
    length = numpyro.sample("length", dist.InverseGamma(5.0, 5.0))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([x.size]).to_event(1))
    chol = jnp.linalg.cholesky(_kernel(x, amplitude, length) + 1e-4 * jnp.eye(x.size))
    numpyro.sample("y", dist.Bernoulli(logits=chol @ raw), obs=y)


MODELS = {
    "mixture-ordered": lambda: Numpyro(mixture_ordered, (_heights(),)),
    "mixture-switching": lambda: Numpyro(mixture_switching, (_heights(),), copies=_exchanged),
    "mixture-enumerated": lambda: Numpyro(mixture_enumerated, (_heights(),)),
    "zero-inflated": lambda: Numpyro(zero_inflated, _arrivals()),
    "negative-binomial": lambda: Numpyro(negative_binomial, _overdispersed()),
    "two-proportions": lambda: Numpyro(proportions, (7, 20, 13, 22)),
    "dual-moon": lambda: Numpyro(dual_moon, grid=((-6.0, 6.0), (-6.0, 6.0))),
    "item-response": lambda: Numpyro(item_response, _answers()),
    "factorisation": lambda: Numpyro(factorisation, _factors(), copies=_rotated),
    "gp-regression": lambda: Numpyro(gp_regression, _curve()),
    "gp-classification": lambda: Numpyro(gp_classification, _labels()),
}
