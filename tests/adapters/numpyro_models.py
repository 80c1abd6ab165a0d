"""NumPyro models of very different shapes, each with small data."""

# NumPyro types what it samples as anything like an array, which has no index and no minus.
# pyright: reportIndexIssue=false, reportOperatorIssue=false

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions.transforms import AffineTransform
from numpyro.handlers import block, condition, reparam
from numpyro.infer.reparam import LocScaleReparam

NOISE = np.random.default_rng(0)


class Case(NamedTuple):
    """A model and its arguments; `whole` are those of a run on all data, `rows` what a target finds.

    `enumerate_at` is the first axis left of the plates, for models with discrete sites.
    """

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    whole: dict[str, Any] | None = None
    rows: int = 0
    enumerate_at: int | None = None


def logistic(x, y=None, batch=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Cauchy(0, 1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch) as rows:
        logits = numpyro.deterministic("logits", b + x[rows] @ w)
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=None if y is None else y[rows])


def constrained(y):
    std = numpyro.sample("std", dist.HalfCauchy(1.0))
    low = numpyro.sample("low", dist.Uniform(-3.0, 1.0))
    high = numpyro.sample("high", dist.TruncatedNormal(low, 1.0, low=low))
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    numpyro.deterministic("width", high - low)
    numpyro.sample("y", dist.StudentT(freedom, 0.5 * (low + high), std), obs=y)


def simplex(counts):
    alpha = numpyro.sample("alpha", dist.Exponential(1.0))
    with numpyro.plate("groups", counts.shape[0]):
        p = numpyro.sample("p", dist.Dirichlet(alpha * jnp.ones(counts.shape[1])))
        numpyro.sample("counts", dist.Multinomial(20, probs=p), obs=counts)


def cholesky(y):
    dim = y.shape[-1]
    std = numpyro.sample("std", dist.LogNormal(0, 1).expand([dim]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(dim, 2.0))
    mean = numpyro.sample("mean", dist.Normal(0, 3).expand([dim]).to_event(1))
    scale_tril = std[:, None] * factor
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.MultivariateNormal(mean, scale_tril=scale_tril), obs=y)


def schools(effect, error):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    std = numpyro.sample("std", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(effect)):
        theta = numpyro.sample("theta", dist.Normal(mean, std))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


def varying_slopes(group, x, y, groups):
    std = numpyro.sample("std", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with numpyro.plate("groups", groups):
        slope = numpyro.sample("slope", dist.Normal(0, std).to_event(1))
    noise = numpyro.sample("noise", dist.InverseGamma(2.0, 1.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(slope[group, 0] + slope[group, 1] * x, noise), obs=y)


def marginal_mixture(y):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(3)))
    loc = numpyro.sample("loc", dist.Normal(0, 5).expand([3]).to_event(1))
    std = numpyro.sample("std", dist.LogNormal(0, 1))
    mixture = dist.MixtureSameFamily(dist.Categorical(weight), dist.Normal(loc, std))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", mixture, obs=y)


def gaussian_process(x, y):
    length = numpyro.sample("length", dist.InverseGamma(3.0, 2.0))
    height = numpyro.sample("height", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    kernel = height**2 * jnp.exp(-0.5 * ((x[:, None] - x[None, :]) / length) ** 2)
    covariance = kernel + (noise**2 + 1e-6) * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def time_series(y):
    drift = numpyro.sample("drift", dist.Uniform(-1, 1))
    std = numpyro.sample("std", dist.HalfNormal(1.0))

    def step(before, observed):
        level = numpyro.sample("level", dist.Normal(drift * before, std))
        numpyro.sample("y", dist.Poisson(jnp.exp(level)), obs=observed)
        return level, None

    scan(step, 0.0, y)


def badly_scaled(x, y):
    tiny = numpyro.sample("tiny", dist.Normal(0, 1e-6))
    huge = numpyro.sample("huge", dist.Normal(1e6, 1e5))
    std = numpyro.sample("std", dist.LogNormal(5.0, 3.0))
    numpyro.sample("y", dist.Normal(huge + tiny * x, std), obs=y)


def enumerated_mixture(y):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("components", 2):
        loc = numpyro.sample("loc", dist.Normal(0, 3))
    with numpyro.plate("data", len(y)):
        which = numpyro.sample("which", dist.Categorical(weight), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(loc[which], 1.0), obs=y)


def hidden_markov(y):
    stay = numpyro.sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    loc = numpyro.sample("loc", dist.Normal(0, 3).expand([2]).to_event(1))

    def step(state, observed):
        probs = jnp.stack([stay, 1 - stay], axis=-1)
        state = numpyro.sample(
            "state",
            dist.Categorical(jnp.where(state == 0, probs[0], probs[1][::-1])),
            infer={"enumerate": "parallel"},
        )
        numpyro.sample("y", dist.Normal(loc[state], 1.0), obs=observed)
        return state, None

    scan(step, 0, y)


def standardised(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    x = (x - x.mean()) / x.std()
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def with_factor(x):
    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.positive, (), (2,)))
    numpyro.factor("energy", -jnp.sum((z - x) ** 2))


def transformed():
    base = dist.TransformedDistribution(dist.Normal(0, 1), AffineTransform(2.0, 3.0))
    numpyro.sample("a", base)
    numpyro.sample("b", dist.TransformedDistribution(dist.Beta(2.0, 3.0), AffineTransform(-1.0, 2.0)))
    numpyro.sample("c", dist.OrderedLogistic(0.3, jnp.array([-1.0, 1.0])), obs=1)


def counting_groups(group, y):
    with numpyro.plate("groups", int(np.max(group)) + 1):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mean[group], 1.0), obs=y)


X, Y = jnp.asarray(NOISE.normal(size=(12, 3))), jnp.asarray(NOISE.normal(size=12))
LABEL, GROUP = (X[:, 0] + 0.3 * Y > 0).astype(int), np.arange(12) % 4
COUNTS = NOISE.multinomial(20, [0.2, 0.3, 0.5], size=4)
EFFECT, ERROR = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
NONCENTRED = reparam(schools, config={"theta": LocScaleReparam(0.0)})

CASES = {
    "logistic": Case(logistic, (X, LABEL), rows=12),
    "subsampled": Case(logistic, (X, LABEL), {"batch": 5}, whole={}, rows=12),
    "constrained": Case(constrained, (Y,), rows=12),
    "simplex": Case(simplex, (COUNTS,)),
    "cholesky": Case(cholesky, (X,), rows=12),
    "hierarchical": Case(schools, (EFFECT, ERROR)),
    "varying-slopes": Case(varying_slopes, (GROUP, X[:, 0], Y, 4), rows=12),
    "marginal-mixture": Case(marginal_mixture, (Y,), rows=12),
    "gaussian-process": Case(gaussian_process, (X[:, 0], Y)),
    "time-series": Case(time_series, (GROUP,)),
    "badly-scaled": Case(badly_scaled, (X[:, 0], 1e6 + 100 * Y), rows=12),
    "enumerated-mixture": Case(enumerated_mixture, (Y,), enumerate_at=-2),
    "hidden-markov": Case(hidden_markov, (Y,), enumerate_at=-1),
    "standardised": Case(standardised, (X[:, 0], Y)),
    "factor": Case(with_factor, (X[0, :2],)),
    "transformed": Case(transformed),
    "numbers-needed": Case(counting_groups, (GROUP, Y)),
    "non-centred": Case(NONCENTRED, (EFFECT, ERROR)),
    "conditioned": Case(condition(logistic, data={"b": 0.5}), (X, LABEL), rows=12),
    "blocked": Case(block(condition(schools, data={"mean": 1.0}), hide=["mean"]), (EFFECT, ERROR)),
}
