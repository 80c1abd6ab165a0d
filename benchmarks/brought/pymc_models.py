"""Models in PyMC's language, as its examples have them. PyMC is imported when one is built."""

import numpy as np
from scipy.special import expit

from .hierarchies import AT_BAT, EFFECT, ERROR, HITS, baseball_moments
from .languages import Pymc


def schools(effect, error):
    """PyMC: eight schools, centred, half-Cauchy scale."""
    import pymc as pm

    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("y", theta, error, observed=effect)


def schools_easy(effect, error):
    """The same, non-centred."""
    import pymc as pm

    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    raw = pm.Normal("raw", 0, 1, shape=8)
    theta = pm.Deterministic("theta", mu + tau * raw)
    pm.Normal("y", theta, error, observed=effect)


def _outliers():
    rng = np.random.default_rng(371)
    x = rng.normal(size=60)
    y = 1 + 2 * x + 0.5 * rng.normal(size=60)
    y[:5] += 6
    return x, y


def robust(x, y):
    """PyMC: robust regression, Student t with unknown degrees of freedom."""
    import pymc as pm

    intercept = pm.Normal("intercept", 0, 10)
    slope = pm.Normal("slope", 0, 10)
    sigma = pm.HalfCauchy("sigma", 2)
    nu = pm.Gamma("nu", 2, 0.1)
    pm.StudentT("y", nu, mu=intercept + slope * x, sigma=sigma, observed=y)


def _trial():
    rng = np.random.default_rng(372)
    return 100 + 2 * rng.standard_t(4, size=40), 101 + 1.5 * rng.standard_t(4, size=35)


def best(treated, control):
    """PyMC: estimation supersedes the t test (Kruschke 2013): uniform scales, shifted exponential."""
    import pymc as pm

    mean1 = pm.Normal("mean1", 100, 10)
    mean2 = pm.Normal("mean2", 100, 10)
    std1 = pm.Uniform("std1", 0.1, 10)
    std2 = pm.Uniform("std2", 0.1, 10)
    nu = pm.Exponential("nu", 1 / 29)
    pm.StudentT("treated", nu + 1, mu=mean1, sigma=std1, observed=treated)
    pm.StudentT("control", nu + 1, mu=mean2, sigma=std2, observed=control)
    pm.Deterministic("difference", mean1 - mean2)


def rats(total, tumours):
    """PyMC: rat tumours (Tarone 1982), Beta rates whose hyperprior is a potential."""
    import pymc as pm
    import pytensor.tensor as pt

    ab = pm.HalfNormal("ab", 10, shape=2)
    pm.Potential("hyperprior", -2.5 * pt.log(ab[0] + ab[1]))
    rate = pm.Beta("rate", ab[0], ab[1], shape=total.size)
    pm.Binomial("tumours", total, rate, observed=tumours)


def _tumours():
    rng = np.random.default_rng(373)
    total = rng.integers(15, 25, size=20)
    return total, rng.binomial(total, rng.beta(2.0, 9.0, size=20))


def covariance(y):
    """PyMC: means and covariance of a normal by an LKJ prior."""
    import pymc as pm

    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    mu = pm.Normal("mu", 0, 2, shape=3)
    pm.MvNormal("y", mu, chol=chol, observed=y)


def _triples():
    rng = np.random.default_rng(374)
    root = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [-0.3, 0.2, 0.7]])
    return (rng.normal(size=(80, 3)) @ root.T + [0.0, 1.0, -1.0],)


def _durations():
    rng = np.random.default_rng(375)
    x = rng.normal(size=80)
    time = rng.exponential(np.exp(1 + 0.6 * x))
    return x, np.minimum(time, 5.0), (time > 5.0).astype(float)


def exponential_survival(x, time, censored):
    """PyMC: exponential survival, right-censored by a potential."""
    import pymc as pm
    import pytensor.tensor as pt

    a = pm.Normal("a", 0, 3)
    b = pm.Normal("b", 0, 3)
    log_rate = -(a + b * x)
    pm.Potential("times", pt.sum((1 - censored) * log_rate - time * pt.exp(log_rate)))


def baseball(at_bat, hits):
    """PyMC: batters, Beta with exponential log concentration."""
    import pymc as pm

    phi = pm.Uniform("phi", 0, 1)
    kappa_log = pm.Exponential("kappa_log", 1.5)
    kappa = pm.Deterministic("kappa", pm.math.exp(kappa_log))
    theta = pm.Beta("theta", phi * kappa, (1 - phi) * kappa, shape=at_bat.size)
    pm.Binomial("y", at_bat, theta, observed=hits)


def _baseball_moments():
    """As in NumPyro, by other names: a Pareto prior is an exponential one of the logarithm."""
    known = baseball_moments()
    return {"phi": known["mean"], "kappa_log": known["kappa"], "theta": known["phi"]}


def _mixed():
    rng = np.random.default_rng(376)
    return (np.concatenate([rng.normal(-2, 0.6, 40), rng.normal(0.5, 0.5, 50), rng.normal(3, 0.8, 30)]),)


def mixture(y):
    """PyMC: three normals with ordered means."""
    import pymc as pm

    weight = pm.Dirichlet("weight", np.ones(3))
    mean = pm.Normal(
        "mean", 0, 5, shape=3, transform=pm.distributions.transforms.ordered, initval=[-2.0, 0.0, 2.0]
    )
    std = pm.HalfNormal("std", 1, shape=3)
    pm.NormalMixture("y", weight, mean, std, observed=y)


def _counties():
    rng = np.random.default_rng(377)
    county = np.repeat(np.arange(15), rng.integers(3, 10, size=15))
    floor = (rng.uniform(size=county.size) < 0.3).astype(float)
    y = (1.4 + 0.5 * rng.normal(size=15))[county] - 0.7 * floor + 0.6 * rng.normal(size=county.size)
    return county, floor, y


def counties(county, floor, y):
    """PyMC: varying intercepts of counties, centred, exponential scales."""
    import pymc as pm

    mu = pm.Normal("mu", 0, 5)
    std = pm.Exponential("std", 1)
    alpha = pm.Normal("alpha", mu, std, shape=15)
    beta = pm.Normal("beta", 0, 5)
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("y", alpha[county] + beta * floor, sigma, observed=y)


def _questionnaire():
    rng = np.random.default_rng(378)
    x = rng.normal(size=(120, 2))
    return x, np.digitize(x @ [0.8, -0.5] + rng.logistic(size=120), [-1.0, 0.5, 2.0])


def ordinal(x, y):
    """PyMC: ordered logistic regression, cut points with the ordered transform."""
    import pymc as pm

    beta = pm.Normal("beta", 0, 2, shape=2)
    cuts = pm.Normal(
        "cuts", 0, 3, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1.0, 0.0, 1.0]
    )
    pm.OrderedLogistic("y", eta=pm.math.dot(x, beta), cutpoints=cuts, observed=y)


def _seeds():
    rng = np.random.default_rng(379)
    x = rng.integers(0, 2, size=(21, 2)).astype(float)
    total = rng.integers(10, 80, size=21)
    odds = -0.5 + 0.2 * x[:, 0] + 1.0 * x[:, 1] + 0.4 * rng.normal(size=21)
    return x, total, rng.binomial(total, expit(odds))


def seeds(x, total, y):
    """PyMC: germination with overdispersion, plate effects centred, half-Cauchy scale."""
    import pymc as pm

    a = pm.Normal("a", 0, 3)
    b = pm.Normal("b", 0, 3, shape=2)
    std = pm.HalfCauchy("std", 1)
    effect = pm.Normal("effect", 0, std, shape=total.size)
    pm.Binomial("y", total, logit_p=a + pm.math.dot(x, b) + effect, observed=y)


def seeds_easy(x, total, y):
    """The same, non-centred."""
    import pymc as pm

    a = pm.Normal("a", 0, 3)
    b = pm.Normal("b", 0, 3, shape=2)
    std = pm.HalfCauchy("std", 1)
    raw = pm.Normal("raw", 0, 1, shape=total.size)
    effect = pm.Deterministic("effect", std * raw)
    pm.Binomial("y", total, logit_p=a + pm.math.dot(x, b) + effect, observed=y)


MODELS = {
    "pymc-schools": lambda: Pymc(schools, (EFFECT, ERROR), easy=schools_easy, accept=0.97),
    "pymc-robust": lambda: Pymc(robust, _outliers()),
    "pymc-best": lambda: Pymc(best, _trial()),
    "pymc-rats": lambda: Pymc(rats, _tumours(), accept=0.95),
    "pymc-covariance": lambda: Pymc(covariance, _triples()),
    "pymc-survival": lambda: Pymc(exponential_survival, _durations()),
    "pymc-baseball": lambda: Pymc(baseball, (AT_BAT, HITS), exact=_baseball_moments),
    "pymc-mixture": lambda: Pymc(mixture, _mixed()),
    "pymc-counties": lambda: Pymc(counties, _counties(), accept=0.95),
    "pymc-ordinal": lambda: Pymc(ordinal, _questionnaire()),
    "pymc-seeds": lambda: Pymc(seeds, _seeds(), easy=seeds_easy, accept=0.97),
}
