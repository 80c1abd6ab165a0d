"""Models on which another tool's variational inference failed its user, from public issue trackers."""

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from scipy.special import expit

import quietgrad as qg

from .densities import log_half_cauchy, log_half_normal, log_inverse_gamma, normal, normals
from .model import Model, Moments, View, density


def drug_scores() -> Model:
    """Seven test scores on a dose, weak priors: z = intercept, slope, log sd."""
    dose = np.array([1.17, 2.97, 3.26, 4.69, 5.83, 6.0, 6.41])
    score = np.array([78.93, 58.2, 67.47, 37.47, 45.65, 32.92, 29.97])
    target = qg.Target(
        lambda z: normals(z[:2], 0.0, 100.0) + log_half_cauchy(z[2], 5.0),
        lambda z, d: normal(d[1], z[0] + z[1] * d[0], jnp.exp(z[2])),
        (dose, score),
        dim=3,
    )
    start = np.array([85.0, -8.0, 2.0])
    return Model("regression on seven points", target, source="pymc-devs/pymc#2162", start=start)


def far_observation() -> Model:
    """x ~ N(0, 1), seen once as 10 with sd 0.5: the start is far from the answer."""
    target = density(lambda z: normal(z[0], 0.0, 1.0) + normal(10.0, z[0], 0.5), 1)
    exact = Moments(np.array([8.0]), np.array([np.sqrt(0.2)]), "conjugate normal")
    return Model("one far observation", target, exact=exact, source="pymc-devs/pymc#6271")


def naive_logistic() -> Model:
    """Logistic regression with the link written as exp(x) / (1 + exp(x)), which overflows."""
    rng = np.random.default_rng(1401)
    x = np.column_stack([np.ones(4000), rng.normal(size=(4000, 7))])
    y = (rng.uniform(size=4000) < expit(x @ rng.normal(size=8))).astype(float)

    def log_likelihood(z, data):
        x, y = data
        odds = jnp.exp(x @ z)
        p = odds / (1 + odds)
        return y * jnp.log(p) + (1 - y) * jnp.log(1 - p)

    target = qg.Target(lambda z: normals(z, 0.0, 2.0), log_likelihood, (x, y), dim=8)
    return Model("logistic regression, naive link", target, source="pymc-devs/pymc#1147")


def heritability() -> Model:
    """A mixed model whose share of variance h² is wanted: z = logit h², log variance, mean, 40 effects.

    Effects are centred: their sd is the root of h² times the total variance. Forty families of six.
    """
    rng = np.random.default_rng(1402)
    family = np.repeat(np.arange(40), 6)
    effect = np.sqrt(0.45) * rng.normal(size=40)
    y = 2.0 + effect[family] + np.sqrt(0.55) * rng.normal(size=240)

    def scales(z):
        share = 0.5 * log_sigmoid(z[0]), 0.5 * log_sigmoid(-z[0])
        return jnp.exp(0.5 * z[1] + share[0]), jnp.exp(0.5 * z[1] + share[1])

    def log_prior(z):
        share = log_sigmoid(z[0]) + log_sigmoid(-z[0])
        total = log_inverse_gamma(z[1], 1e-3, 1e-3)
        return share + total + normal(z[2], 0.0, 100.0) + normals(z[3:], 0.0, scales(z)[0])

    target = qg.Target(
        log_prior,
        lambda z, d: normal(d[1], z[2] + z[3:][d[0]], scales(z)[1]),
        (family, y),
        dim=43,
    )
    view = View(
        lambda u: jnp.concatenate([u[:3], u[3:] * scales(u)[0]]),
        lambda u: 40 * jnp.log(scales(u)[0]),
    )
    about = "mixed model, share of variance"
    return Model(about, target, view=view, source="pymc-devs/pymc#1163", accept=0.95)


def volatility() -> Model:
    """Stochastic volatility, centred: z = mean, atanh φ, log σ, and the log volatility at 100 times."""
    rng = np.random.default_rng(1403)
    steps, level = 100, np.zeros(100)
    level[0] = 0.2 / np.sqrt(1 - 0.98**2) * rng.normal()
    for t in range(1, steps):
        level[t] = 0.005 + 0.98 * (level[t - 1] - 0.005) + 0.2 * rng.normal()
    y = np.exp(0.5 * level) * rng.normal(size=steps)

    def log_density(z):
        mean, phi, std, level = z[0], jnp.tanh(z[1]), jnp.exp(z[2]), z[3:]
        # (1 + φ) / 2 ~ beta(20, 1.5), with the Jacobian of tanh
        prior = normal(mean, 0.0, 10.0) + log_inverse_gamma(z[2], 5.0, 0.05)
        prior += 20.0 * log_sigmoid(2 * z[1]) + 1.5 * log_sigmoid(-2 * z[1])
        prior += normal(level[0], mean, std * jnp.cosh(z[1]))
        prior += normals(level[1:], mean + phi * (level[:-1] - mean), std)
        return prior + normals(y, 0.0, jnp.exp(0.5 * level))

    def to_z(u):
        phi, std = jnp.tanh(u[1]), jnp.exp(u[2])
        unit = u[3:].at[0].multiply(jnp.cosh(u[1]))
        # The walk from its unit steps: level_t = Σ φ^(t-s) step_s.
        lag = np.subtract.outer(np.arange(steps), np.arange(steps))
        powers = jnp.where(lag >= 0, phi ** jnp.maximum(lag, 0), 0.0)
        return jnp.concatenate([u[:3], u[0] + std * (powers @ unit)])

    view = View(to_z, lambda u: steps * u[2] + jnp.log(jnp.cosh(u[1])))
    return Model(
        "stochastic volatility, centred",
        density(log_density, steps + 3),
        view=view,
        source="stan-dev/rstan#1075",
        start=np.array([0.0, 2.0, -2.0, *np.zeros(steps)]),
        accept=0.95,
    )


def cars() -> Model:
    """Miles per gallon on weight for 32 cars (Motor Trend, 1974): the intercept came out wrong."""
    weight = np.array(
        [
            2.62,
            2.875,
            2.32,
            3.215,
            3.44,
            3.46,
            3.57,
            3.19,
            3.15,
            3.44,
            3.44,
            4.07,
            3.73,
            3.78,
            5.25,
            5.424,
        ]
        + [5.345, 2.2, 1.615, 1.835, 2.465, 3.52, 3.435, 3.84, 3.845, 1.935, 2.14, 1.513, 3.17, 2.77]
        + [3.57, 2.78]
    )
    miles = np.array(
        [21.0, 21.0, 22.8, 21.4, 18.7, 18.1, 14.3, 24.4, 22.8, 19.2, 17.8, 16.4, 17.3, 15.2, 10.4, 10.4]
        + [14.7, 32.4, 30.4, 33.9, 21.5, 15.5, 15.2, 13.3, 19.2, 27.3, 26.0, 30.4, 15.8, 19.7]
        + [15.0, 21.4]
    )
    target = qg.Target(
        lambda z: normal(z[0], 20.0, 60.0) + normal(z[1], 0.0, 15.0) + log_half_normal(z[2], 10.0),
        lambda z, d: normal(d[1], z[0] + z[1] * d[0], jnp.exp(z[2])),
        (weight, miles),
        dim=3,
    )
    start = np.array([37.0, -5.3, 1.1])
    return Model("mileage on weight", target, source="stan-dev/rstanarm#18", start=start)


def precision_funnel() -> Model:
    """Ten means with a common log precision, each seen once: a centred hierarchy."""
    y = np.random.default_rng(1404).normal(size=10) * np.sqrt(1 + np.exp(-1.0))

    def log_density(z):
        std = jnp.exp(-0.5 * z[0])
        return normal(z[0], 0.0, 1.0) + normals(z[1:], 0.0, std) + normals(y, z[1:], 1.0)

    view = View(lambda u: jnp.concatenate([u[:1], jnp.exp(-0.5 * u[0]) * u[1:]]), lambda u: -5.0 * u[0])
    about = "means with a common log precision"
    return Model(about, density(log_density, 11), view=view, source="pymc-devs/pymc#982", accept=0.95)


MODELS = {
    "pymc-2162": drug_scores,
    "pymc-6271": far_observation,
    "pymc-1147": naive_logistic,
    "pymc-1163": heritability,
    "rstan-1075": volatility,
    "rstanarm-18": cars,
    "pymc-982": precision_funnel,
}
