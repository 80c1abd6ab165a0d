"""NumPyro models with proper and improper posteriors, many of which end where numbers do.

Each entry makes a target, in the precision that holds when it is called.
"""

# NumPyro types what it samples as anything like an array, which has no index and no minus.
# pyright: reportIndexIssue=false, reportOperatorIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr, logsumexp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

import quietgrad as qg

NOISE = np.random.default_rng(0)
NORMAL = NOISE.normal(size=30)
X = NOISE.normal(size=(40, 3))
CLUSTERS = np.concatenate([NOISE.normal(-2, 0.7, 30), NOISE.normal(2, 0.7, 30)])
COUNTS = NOISE.poisson(3.0, 40) * NOISE.binomial(1, 0.6, 40)
GROUP = np.repeat(np.arange(5, dtype=np.int32), 6)
# The first predictor alone separates the classes of one, a sum of two those of the other.
SEPARATED = (X[:, 0] > 0).astype(int)
SEPARATED_BY_A_SUM = (X[:, 0] + X[:, 1] - X[:, 2] > 0).astype(int)
NOT_SEPARATED = (X[:, 0] + NOISE.logistic(size=40) > 0).astype(int)
REAL, POSITIVE = constraints.real, constraints.positive


def flat(name, support=REAL, shape=()):
    return numpyro.sample(name, dist.ImproperUniform(support, (), shape))


def simplex(size, concentration, rows=50, seen=3):
    """Categories from `seen` on are empty."""
    y = np.random.default_rng(1).integers(0, seen, rows)

    def model(y):
        p = numpyro.sample("p", dist.Dirichlet(concentration * jnp.ones(size)))
        numpyro.sample("y", dist.Categorical(p), obs=y)

    return lambda: qg.Target.from_numpyro(model, y)


def simplex_without_data():
    numpyro.sample("p", dist.Dirichlet(0.05 * jnp.ones(4)))


def truncated(x):
    mean, std = numpyro.sample("mean", dist.Normal(0, 10)), numpyro.sample("std", dist.HalfNormal(1))
    numpyro.sample("x", dist.TruncatedNormal(mean, std, low=0.0), obs=x)


def truncated_at_both_ends(x):
    mean, std = numpyro.sample("mean", dist.Normal(0, 10)), numpyro.sample("std", dist.HalfNormal(1))
    numpyro.sample("x", dist.TruncatedNormal(mean, std, low=-1.0, high=2.0), obs=x)


def truncated_prior(y):
    mean = numpyro.sample("mean", dist.TruncatedNormal(0.0, 1.0, low=0.0))
    low = numpyro.sample("low", dist.TruncatedCauchy(0.0, 1.0, low=-1.0, high=3.0))
    numpyro.sample("y", dist.Normal(mean + low, 1.0), obs=y)


def censored(y):
    """What is above one is only known to be there; the tail by a difference, as users write it."""
    mean, std = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("std", dist.HalfCauchy(1))
    seen = dist.Normal(mean, std)
    tail = jnp.log(1 - seen.cdf(1.0))
    numpyro.factor("y", jnp.sum(jnp.where(y < 1, seen.log_prob(y), tail)))


def censored_stably(y):
    mean, std = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("std", dist.HalfCauchy(1))
    tail = log_ndtr((mean - 1) / std)
    numpyro.factor("y", jnp.sum(jnp.where(y < 1, dist.Normal(mean, std).log_prob(y), tail)))


def ordered_mixture(y):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(2)))
    prior = dist.TransformedDistribution(dist.Normal(0, 3).expand([2]).to_event(1), OrderedTransform())
    means = numpyro.sample("means", prior)
    std = numpyro.sample("std", dist.HalfNormal(1).expand([2]).to_event(1))
    numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weight), dist.Normal(means, std)), obs=y)


def ordered_logistic(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    prior = dist.TransformedDistribution(dist.Normal(0, 2).expand([3]).to_event(1), OrderedTransform())
    numpyro.sample("y", dist.OrderedLogistic(slope * x, numpyro.sample("cuts", prior)), obs=y)


def cholesky(y):
    std = numpyro.sample("std", dist.HalfCauchy(1).expand([3]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(3, 1.0))
    scale = std[:, None] * factor
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(3), scale_tril=scale), obs=y)


def circular(y):
    mean = numpyro.sample("mean", dist.VonMises(0.0, 0.5))
    sharpness = numpyro.sample("sharpness", dist.Gamma(1.0, 0.1))
    numpyro.sample("y", dist.VonMises(mean, sharpness), obs=y)


def intervals(y):
    low = numpyro.sample("low", dist.Uniform(-3, 1))
    share = numpyro.sample("share", dist.Beta(0.1, 0.1))
    std = numpyro.sample("std", dist.Uniform(0, 10))
    numpyro.sample("y", dist.Normal(low + share, std), obs=y)


def vague_gammas(y):
    """The priors of old textbooks: all but flat on the log scale, and proper."""
    precision = numpyro.sample("precision", dist.Gamma(0.001, 0.001))
    other = numpyro.sample("other", dist.InverseGamma(0.001, 0.001))
    numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(1 / precision + other)), obs=y)


def horseshoe(x, y):
    shared = numpyro.sample("shared", dist.HalfCauchy(1))
    local = numpyro.sample("local", dist.HalfCauchy(1).expand([3]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ (shared * local * w), 1.0), obs=y)


def schools(y):
    """Centred, with a half-Cauchy scale."""
    mean, std = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("std", dist.HalfCauchy(5))
    theta = numpyro.sample("theta", dist.Normal(mean, std).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(theta[GROUP], 1.0), obs=y)


def zero_inflated(y):
    gate = numpyro.sample("gate", dist.Beta(1, 1))
    rate = numpyro.sample("rate", dist.HalfCauchy(5))
    numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=y)


def hidden_markov(y):
    """Two states, summed out by the forward recursion."""
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    means = numpyro.sample("means", dist.Normal(0, 3).expand([2]).to_event(1))
    seen = dist.Normal(means, 1.0).log_prob(y[:, None])

    def step(forward, log_seen):
        return logsumexp(forward[:, None] + jnp.log(rows), axis=0) + log_seen, None

    forward, _ = jax.lax.scan(step, seen[0] - jnp.log(2.0), seen[1:])
    numpyro.factor("y", logsumexp(forward))


def probit(x, y):
    """By clipped probabilities, as users write it."""
    w = numpyro.sample("w", dist.Normal(0, 10).expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(probs=dist.Normal(0, 1).cdf(x @ w)), obs=y)


def logistic_without_a_prior(x, y):
    numpyro.sample("y", dist.Bernoulli(logits=x @ flat("w", constraints.real_vector, (3,))), obs=y)


def clipped_rate(y):
    """Flat on the logit, and proper: a success and a failure. Probabilities are clipped at 1 - eps."""
    numpyro.sample("y", dist.Bernoulli(probs=1 / (1 + jnp.exp(-flat("logit")))), obs=y)


def student(y):
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    mean, std = numpyro.sample("mean", dist.Cauchy(0, 1)), numpyro.sample("std", dist.LogNormal(0, 5))
    numpyro.sample("y", dist.StudentT(freedom, mean, std), obs=y)


def unused():
    flat("a")
    numpyro.sample("b", dist.Normal(0, 1))


def half_flat():
    flat("a", POSITIVE)
    numpyro.sample("b", dist.Normal(0, 1))


def log_scale(y):
    """Flat on the log of the scale of effects that may all be zero: flat towards minus infinity."""
    std = flat("std", POSITIVE)
    numpyro.factor("prior", -jnp.log(std))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal((std * raw)[GROUP], 1.0), obs=y)


def collapsing_scale(y):
    """The mean is a datum: the likelihood of its component grows like 1 / std as that shrinks."""
    std = flat("std", POSITIVE)
    numpyro.factor("prior", -jnp.log(std) - std)
    mixture = dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.5, 0.5])),
        dist.Normal(jnp.stack([y[0], 0.0 * y[0]]), jnp.stack([std, 1.0 + 0 * std])),
    )
    numpyro.sample("y", mixture, obs=y)


def equal_predictors(x, y):
    w = flat("w", constraints.real_vector, (2,))
    numpyro.sample("y", dist.Normal(w[0] * x + w[1] * x, 1.0), obs=y)


def intercept_beside_groups(y):
    level, effect = flat("level"), flat("effect", constraints.real_vector, (5,))
    numpyro.sample("y", dist.Normal(level + effect[GROUP], 1.0), obs=y)


def of(model, *args):
    return lambda: qg.Target.from_numpyro(model, *args)


EFFECTS = np.arange(5.0)[GROUP] + NOISE.normal(size=30)
PROPER = {
    "a simplex of 2": simplex(2, 1.0, seen=2),
    "a simplex of 4 with an empty category": simplex(4, 1.0),
    "a simplex of 50 with empty categories": simplex(50, 1.0),
    "a sparse simplex of 50": simplex(50, 0.1),
    "a simplex without data": of(simplex_without_data),
    "truncated data": of(truncated, np.abs(NORMAL)),
    "data truncated at both ends": of(truncated_at_both_ends, np.clip(NORMAL, -0.9, 1.9)),
    "truncated priors": of(truncated_prior, NORMAL),
    "censored data": of(censored, NORMAL),
    "censored data, stably": of(censored_stably, NORMAL),
    "an ordered mixture": of(ordered_mixture, CLUSTERS),
    "ordered categories": of(ordered_logistic, X[:, 0], NOISE.integers(0, 4, 40)),
    "a Cholesky factor": of(cholesky, X),
    "directions on a circle": of(circular, np.clip(NORMAL, -3, 3)),
    "intervals": of(intervals, NORMAL),
    "vague gammas": of(vague_gammas, NORMAL),
    "a horseshoe": of(horseshoe, X, X[:, 0]),
    "a half-Cauchy scale": of(schools, EFFECTS),
    "zero-inflated counts": of(zero_inflated, COUNTS),
    "a hidden Markov model": of(hidden_markov, CLUSTERS),
    "probit by clipped probabilities": of(probit, X, NOT_SEPARATED),
    "logistic regression without a prior": of(logistic_without_a_prior, X, NOT_SEPARATED),
    "a clipped rate": of(clipped_rate, np.array([0, 1])),
    "Student's t": of(student, NORMAL),
}
# With a word that the sentence must have.
IMPROPER = {
    "a flat coordinate": (of(unused), "along coordinate a"),
    "a half-flat coordinate": (of(half_flat), "along coordinate a"),
    "a log scale": (of(log_scale, NORMAL), "along coordinate std"),
    "a collapsing scale": (of(collapsing_scale, NORMAL), "along coordinate std"),
    "equal predictors": (of(equal_predictors, X[:, 0], X[:, 1]), "between coordinate w"),
    "an intercept beside groups": (of(intercept_beside_groups, EFFECTS), "between coordinate"),
    "separated classes": (of(logistic_without_a_prior, X, SEPARATED), "along coordinate w[0]"),
    "classes separated by a sum": (
        of(logistic_without_a_prior, X, SEPARATED_BY_A_SUM),
        "between coordinate w",
    ),
}
