"""Regressions: ordinal, softmax, sparse, robust, censored, circular, with missing values, a network."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import expit

from .languages import Numpyro


def _ordinal():
    rng = np.random.default_rng(341)
    x = rng.normal(size=(150, 2))
    latent = x @ [1.0, -0.6] + rng.logistic(size=150)
    return x, np.digitize(latent, [-1.5, 0.0, 1.2])


def ordinal(x, y):
    """Ordinal regression, ordered cut points by an ordered transform of normals."""
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    base = dist.Normal(0, 1.5).expand([3]).to_event(1)
    ordered = dist.transforms.OrderedTransform()
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, ordered))
    numpyro.sample("y", dist.OrderedLogistic(x @ beta, cuts), obs=y)


def _flowers():
    rng = np.random.default_rng(342)
    label = rng.integers(0, 3, size=120)
    centre = 1.5 * rng.normal(size=(3, 3))
    return centre[label] + rng.normal(size=(120, 3)), label


def softmax(x, y):
    """Softmax regression with all classes' weights: determined by the prior along one direction."""
    a = numpyro.sample("a", dist.Normal(0, 5).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 5).expand([3, 3]).to_event(2))
    numpyro.sample("y", dist.Categorical(logits=a + x @ b), obs=y)


def _credit():
    rng = np.random.default_rng(343)
    x = rng.normal(size=(300, 24)) @ np.linalg.cholesky(0.7 * np.eye(24) + 0.3)
    beta = 0.4 * rng.normal(size=24)
    return x, (rng.uniform(size=300) < expit(-1 + x @ beta)).astype(int)


def credit(x, y):
    """Credit risk: logistic regression with a common, centred scale of all coefficients."""
    tau = numpyro.sample("tau", dist.Gamma(0.5, 0.5))
    alpha = numpyro.sample("alpha", dist.Normal(0, 1))
    beta = numpyro.sample("beta", dist.Normal(0, tau).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=alpha + x @ beta), obs=y)


def _sparse():
    rng = np.random.default_rng(344)
    x = rng.normal(size=(80, 20))
    beta = np.zeros(20)
    beta[[2, 7, 11]] = [2.0, -1.5, 1.0]
    return x, x @ beta + rng.normal(size=80)


def horseshoe(x, y):
    """Horseshoe: half-Cauchy scales for each coefficient and for all, unscaled coefficients."""
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    lam = numpyro.sample("lam", dist.HalfCauchy(1).expand([x.shape[1]]).to_event(1))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    precision = numpyro.sample("precision", dist.Gamma(1.0, 1.0))
    numpyro.sample("y", dist.Normal(x @ (tau * lam * raw), 1 / jnp.sqrt(precision)), obs=y)


def regularised_horseshoe(x, y):
    """Regularised horseshoe (Piironen and Vehtari 2017): slab of finite width."""
    std = numpyro.sample("std", dist.HalfNormal(2))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.05))
    slab = numpyro.sample("slab", dist.InverseGamma(2.0, 8.0))
    lam = numpyro.sample("lam", dist.HalfCauchy(1).expand([x.shape[1]]).to_event(1))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    width = lam * jnp.sqrt(slab / (slab + (tau * lam) ** 2))
    numpyro.sample("y", dist.Normal(x @ (tau * width * raw), std), obs=y)


def spike(x, y):
    """Spike and slab with the indicator summed out: each coefficient narrow or wide."""
    share = numpyro.sample("share", dist.Beta(1.0, 4.0))
    std = numpyro.sample("std", dist.HalfNormal(2))
    parts = dist.Normal(jnp.zeros(2), jnp.array([0.15, 2.0]))
    mixing = dist.Categorical(probs=jnp.stack([1 - share, share]))
    prior = dist.MixtureSameFamily(mixing, parts)
    beta = numpyro.sample("beta", prior.expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, std), obs=y)


def _patients():
    rng = np.random.default_rng(345)
    x = rng.normal(size=(100, 2))
    time = rng.weibull(1.5, size=100) * np.exp(1.0 + x @ [0.5, -0.3])
    end = rng.uniform(1, 8, size=100)
    return x, np.minimum(time, end), time > end


def survival(x, time, censored):
    """Weibull survival, right-censored: survivors by a factor."""
    shape = numpyro.sample("shape", dist.HalfNormal(3))
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    log_scale = intercept + x @ beta
    log_hazard = jnp.log(shape) - log_scale + (shape - 1) * (jnp.log(time) - log_scale)
    log_survival = -((time * jnp.exp(-log_scale)) ** shape)
    numpyro.factor("times", jnp.sum(jnp.where(censored, 0.0, log_hazard) + log_survival))


def _incomes():
    rng = np.random.default_rng(346)
    x = rng.normal(size=200)
    y = 1 + 0.8 * x + rng.normal(size=200)
    return x[y > 0], y[y > 0]


def truncated(x, y):
    """Regression on data that were only kept above zero: truncated normal likelihood."""
    a = numpyro.sample("a", dist.Normal(0, 5))
    b = numpyro.sample("b", dist.Normal(0, 5))
    std = numpyro.sample("std", dist.HalfCauchy(2))
    numpyro.sample("y", dist.TruncatedNormal(a + b * x, std, low=0.0), obs=y)


def _directions():
    rng = np.random.default_rng(347)
    x = rng.normal(size=60)
    return x, np.angle(np.exp(1j * (0.8 + 2 * np.arctan(0.5 * x) + rng.vonmises(0, 4.0, size=60))))


def circular(x, y):
    """Circular regression: a direction as a site on the circle, von Mises noise."""
    mu = numpyro.sample("mu", dist.VonMises(0.0, 0.5))
    b = numpyro.sample("b", dist.Normal(0, 2))
    kappa = numpyro.sample("kappa", dist.Gamma(2.0, 0.2))
    numpyro.sample("y", dist.VonMises(mu + 2 * jnp.arctan(b * x), kappa), obs=y)


def _passengers():
    rng = np.random.default_rng(348)
    age = rng.normal(size=120)
    group = rng.integers(0, 2, size=120)
    y = (rng.uniform(size=120) < expit(0.3 - 0.8 * age + 1.2 * group)).astype(int)
    age[rng.uniform(size=120) < 0.2] = np.nan
    return age, group, y


def missing(age, group, y):
    """Logistic regression with missing ages as latent sites."""
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    std = numpyro.sample("std", dist.HalfNormal(1).expand([2]).to_event(1))
    holes = np.flatnonzero(np.isnan(age))
    impute = dist.Normal(mean[group[holes]], std[group[holes]]).to_event(1)
    filled = jnp.asarray(np.nan_to_num(age)).at[holes].set(numpyro.sample("age_missing", impute))
    seen = np.flatnonzero(~np.isnan(age))
    observed = dist.Normal(mean[group[seen]], std[group[seen]])
    numpyro.sample("age_seen", observed, obs=age[seen])
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=a + b[0] * filled + b[1] * group), obs=y)


def _waves():
    rng = np.random.default_rng(349)
    x = np.sort(rng.uniform(-2, 2, size=60))
    return x, np.sin(2 * x) + 0.15 * rng.normal(size=60)


def network(x, y):
    """A network with five hidden units and Gaussian weights: units can change places and signs."""
    w1 = numpyro.sample("w1", dist.Normal(0, 1.5).expand([2, 5]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0, 1.5).expand([5]).to_event(1))
    precision = numpyro.sample("precision", dist.Gamma(3.0, 1.0))
    hidden = jnp.tanh(jnp.stack([jnp.ones_like(x), x], axis=1) @ w1)
    numpyro.sample("y", dist.Normal(hidden @ w2, 1 / jnp.sqrt(precision)), obs=y)


def _cover():
    rng = np.random.default_rng(350)
    x = np.column_stack([np.ones(20_000), rng.normal(size=(20_000, 54))])
    return x, (rng.uniform(size=20_000) < expit(x @ (0.3 * rng.normal(size=55)))).astype(int)


def forest(x, y):
    """Forest cover: logistic regression on 20,000 rows and 55 columns."""
    coefs = numpyro.sample("coefs", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=None):
        numpyro.sample("y", dist.Bernoulli(logits=x @ coefs), obs=y)


def _relabelled(draws):
    """Signs of hidden units and their order make equal networks; means of weights are zero by that."""
    flipped = dict(draws) | {"w1": -draws["w1"], "w2": -draws["w2"]}
    copies = []
    for shift in range(5):
        for form in (draws, flipped):
            rolled = {name: np.roll(form[name], shift, axis=-1) for name in ("w1", "w2")}
            copies.append(dict(form) | rolled)
    return copies


MODELS = {
    "ordinal": lambda: Numpyro(ordinal, _ordinal()),
    "softmax": lambda: Numpyro(softmax, _flowers()),
    "credit": lambda: Numpyro(credit, _credit()),
    "horseshoe": lambda: Numpyro(horseshoe, _sparse(), by_log=("lam", "tau"), accept=0.98),
    "regularised-horseshoe": lambda: Numpyro(
        regularised_horseshoe, _sparse(), by_log=("lam", "tau", "slab"), accept=0.98
    ),
    "spike": lambda: Numpyro(spike, _sparse(), accept=0.95),
    "survival-weibull": lambda: Numpyro(survival, _patients()),
    "truncated": lambda: Numpyro(truncated, _incomes()),
    "circular": lambda: Numpyro(circular, _directions()),
    "missing-values": lambda: Numpyro(missing, _passengers()),
    "network": lambda: Numpyro(network, _waves(), copies=_relabelled, accept=0.95),
    "forest": lambda: Numpyro(forest, _cover()),
    "forest-batches": lambda: Numpyro(
        forest, _cover(), batch_size=256, too_large="the rows are those of `forest`"
    ),
}
