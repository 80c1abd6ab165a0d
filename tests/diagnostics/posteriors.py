"""Small posteriors with known answers, for the tests of the diagnosis."""

import jax
import jax.numpy as jnp
import numpy as np

from quietgrad import Auto, FitResult, FullRank, MeanField, Status, Target
from quietgrad.diagnostics.comparison import Comparison
from quietgrad.evaluation.points import sobol_pairs
from quietgrad.targets import AbstractNamedModel

COVARIANCE = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.1], [0.3, 0.1, 1.0]])
PRECISION = jnp.asarray(np.linalg.inv(COVARIANCE))
MEAN = jnp.array([1.0, -2.0, 0.5])


def gaussian():
    """Three correlated coordinates."""
    return Target.from_logdensity(lambda z: -0.5 * (z - MEAN) @ (PRECISION @ (z - MEAN)), dim=3)


def funnel():
    """Neal's: the log variance of nine coordinates is itself N(0, 9)."""
    return Target.from_logdensity(
        lambda z: -0.5 * (z[0] / 3) ** 2 - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0]) - 4.5 * z[0],
        dim=10,
    )


def banana():
    """The second coordinate follows the square of the first."""
    return Target.from_logdensity(
        lambda z: -0.5 * (z[0] ** 2 / 4 + ((z[1] + z[0] ** 2) / 0.3) ** 2), dim=2
    )


def bimodal():
    """Two equal modes, eight sds apart in each of three coordinates."""
    return Target.from_logdensity(
        lambda z: jnp.logaddexp(-0.5 * jnp.sum((z - 4) ** 2), -0.5 * jnp.sum((z + 4) ** 2)), dim=3
    )


def cauchy():
    """No mean, no variance."""
    return Target.from_logdensity(lambda z: -jnp.sum(jnp.log1p(z**2)), dim=2)


def improper():
    """Only the sum of two coordinates is determined."""
    return Target.from_logdensity(lambda z: -0.5 * (z[0] + z[1]) ** 2 - 0.5 * z[2] ** 2, dim=3)


def log_gamma():
    """Logs of gamma variables of shape 4: skewed, and close enough to a Gaussian."""
    return Target.from_logdensity(lambda z: jnp.sum(4 * z - jnp.exp(z)), dim=4)


class Noise(AbstractNamedModel):
    """A model whose one variable is an sd, of which the coordinate is the log."""

    def constrain(self, point):
        return {
            "noise": jnp.exp(point["log_noise"]),
            "log_noise": point["log_noise"],
            "one": jnp.ones(()),
        }

    def log_likelihoods(self, point):
        return {}

    def observed(self):
        return {}

    def dims(self):
        return {}

    def coords(self):
        return {}

    def predictive(self, draws, args, kwargs, *, key):
        return {}


def noise():
    """The posterior of an sd from few data: the log of it is nearly Gaussian, its own tail falls like
    noise^-5."""
    return Target(
        lambda point: -4 * point["log_noise"] - 2 * jnp.exp(-2 * point["log_noise"]),
        example={"log_noise": np.zeros(())},
        model=Noise(),
    )


def logistic(similar=0.0):
    """200 rows, four coefficients; with `similar` near one the first two predictors are nearly equal."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    x[:, 1] = similar * x[:, 0] + (1 - similar) * x[:, 1]
    y = (rng.random(200) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.5, 0.0]))).astype(float)

    def log_likelihood(z, data):
        x, y = data
        return y * (x @ z) - jnp.logaddexp(x @ z, 0.0)

    data = jnp.asarray(x), jnp.asarray(y)
    return Target(lambda z: -0.5 * jnp.sum(z**2) / 25, log_likelihood, data, dim=4)


def poisson():
    """200 counts, three coefficients."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    y = rng.poisson(np.exp(0.5 + 0.3 * x[:, 0])).astype(float)

    def log_likelihood(z, data):
        x, y = data
        return y * (x @ z) - jnp.exp(x @ z)

    return Target(
        lambda z: -0.5 * jnp.sum(z**2) / 4, log_likelihood, (jnp.asarray(x), jnp.asarray(y)), dim=3
    )


def result(target, q, status=Status.CONVERGED):
    """A fit that ended here: the diagnosis looks at nothing else."""
    return FitResult(
        q=q,
        elbo=0.0,
        elbo_error=0.0,
        status=status,
        hint="as the test says",
        steps=1,
        history={},
        # Long enough for a verdict to be the same on a machine that does other work.
        clock={"total": 600.0},
        evaluation="",
        programs=0,
        target=target,
        method=Auto(),
        estimator=None,
        estimator_state=None,
        words=jnp.array([1, 2], jnp.uint32),
    )


def mean_field(target, loc, std, status=Status.CONVERGED):
    return result(target, MeanField(jnp.asarray(loc, float), jnp.log(jnp.asarray(std, float))), status)


def full_rank(target, loc, covariance, status=Status.CONVERGED):
    start = FullRank.init(len(loc), key=jax.random.key(0))
    q = start.for_quadratic(np.asarray(loc, float), np.linalg.inv(covariance))
    return result(target, q, status)


def newton(target, family=FullRank):
    """The best Gaussian: average gradient and curvature under q vanish and agree with its precision."""
    gradient = jax.jit(lambda z: jnp.mean(jax.vmap(jax.grad(target.log_density))(z), axis=0))
    hessian = jax.jit(lambda z: jnp.mean(jax.vmap(jax.hessian(target.log_density))(z), axis=0))
    q, rng = family.init(target.dim, key=jax.random.key(0)), np.random.default_rng(0)
    q = q.for_quadratic(np.zeros(target.dim), 100 * np.eye(target.dim))
    for _ in range(8):
        z = q.host_transport(sobol_pairs(q.base, 128, target.dim, rng))
        precision = -np.asarray(hessian(z))
        q = q.for_quadratic(np.asarray(q.loc) + np.linalg.solve(precision, gradient(z)), precision)
    return result(target, q)


def comparison(shift, error):
    """Means that are off by so much, with errors, and scales that are right."""
    return Comparison(shift, error, np.zeros_like(shift), error)
