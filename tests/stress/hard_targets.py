"""Targets that fits break on, with what is known of each: the best ELBO, or that there is none.

`best` is the best ELBO of a mean-field and of a full-rank normal, by a formula, or `None` where
quadrature finds it (one or two dimensions). `ends` lists the statuses that are true: where the ELBO has
no optimum "converged" is not among them. Where it has one but no normal is near the posterior, which may
be improper, `misleads` says so: a fit may converge, and its verdict must not be to trust it, unless it
has the posterior's mean and sd, `moments`, all the same.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

import quietgrad as qg

HALF_LOG_2PI_E = 0.5 * math.log(2 * math.pi * math.e)
NO_ANSWER = ("unbounded", "non-finite", "collapsed", "stalled", "budget")
PROPER = ("converged", "budget", "stalled")


class Hard(NamedTuple):
    """A log density of `dim` numbers. `single` fits it in single precision."""

    fn: Callable
    dim: int
    ends: tuple[str, ...] = PROPER
    best: tuple[float, float] | None = None
    evidence: float | None = None
    single: bool = False
    nodes: int = 61
    misleads: bool = False
    moments: tuple[float, float] = (math.nan, math.nan)

    def target(self) -> qg.Target:
        """As a target."""
        return qg.Target.from_logdensity(self.fn, dim=self.dim)


def gaussian(precision, mean=0.0, *, single=False) -> Hard:
    """A Gaussian with this precision matrix: its log normaliser, and the mean-field gap below it."""
    matrix = np.atleast_2d(np.asarray(precision, float))
    dim = len(matrix)
    log_det = np.linalg.slogdet(matrix)[1]
    evidence = 0.5 * (dim * math.log(2 * math.pi) - log_det)
    # Mean-field takes the precisions of the diagonal: KL = (sum log P_ii - log det P) / 2.
    gap = 0.5 * (np.sum(np.log(np.diagonal(matrix))) - log_det)
    center, P = np.broadcast_to(mean, dim), jnp.asarray(matrix)

    def fn(z):
        return -0.5 * (z - center.astype(z.dtype)) @ P.astype(z.dtype) @ (z - center.astype(z.dtype))

    return Hard(fn, dim, best=(evidence - gap, evidence), evidence=evidence, single=single)


def diagonal(std, mean=0.0) -> Hard:
    """A Gaussian with these standard deviations, many or few."""
    std = np.asarray(std, float)
    evidence = float(np.sum(np.log(std))) + 0.5 * len(std) * math.log(2 * math.pi)
    return Hard(
        lambda z: -0.5 * jnp.sum(((z - mean) / std) ** 2),
        len(std),
        best=(evidence,) * 2,
        evidence=evidence,
    )


def chain(length: int) -> np.ndarray:
    """The precision of a random walk that is held at its start: neighbours are all but equal."""
    steps = np.eye(length) - np.eye(length, k=-1)
    return 100 * steps.T @ steps + 0.01 * np.eye(length)


X = np.random.default_rng(0).normal(size=(20, 2))
SEPARABLE = (X[:, 0] > 0).astype(float)
TWICE = np.stack([X[:, 0], X[:, 0]], axis=1)
Y = TWICE @ np.array([1.0, 1.0]) + np.random.default_rng(1).normal(size=20)
DATA = np.array([-1.0, 0.5, 8.0, 9.0, 9.5])


def logistic(z, x, y):
    return jnp.sum(y * (x @ z) - jnp.logaddexp(x @ z, 0.0))


def corner(z, edge):
    return jnp.where(jnp.all(z > edge), jnp.nan, -0.5 * z @ z)


HARD = {
    # Gaussians whose numbers are hard
    "one dimension": gaussian([[4.0]], 3.0),
    "ten thousand dimensions": diagonal(np.geomspace(0.1, 10.0, 10_000)),
    "scales of 1e-6 and 1e6": diagonal([1e-6, 1e6]),
    "scale of 1e-6, far away": diagonal([1e-6, 1e-6], 1.0),
    "scale of 1e6 from a flat top": diagonal([1e6, 1e6, 1e6]),
    "a hundred million away": diagonal([1.0, 1.0], 1e8),
    "correlation of 0.999": gaussian(np.linalg.inv(0.999 + 0.001 * np.eye(4))),
    "random walk of fifty steps": gaussian(chain(50)),
    "perfect collinearity with a prior": gaussian(TWICE.T @ TWICE + 1e-2 * np.eye(2)),
    # Shapes
    "funnel": Hard(
        lambda z: -0.5 * (z[0] / 3) ** 2 - 0.5 * z[1] ** 2 * jnp.exp(-z[0]) - 0.5 * z[0],
        2,
        evidence=math.log(2 * math.pi * 3),
    ),
    "funnel of ten": Hard(
        lambda z: -0.5 * (z[0] / 3) ** 2 - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0]) - 4.5 * z[0],
        10,
        evidence=5 * math.log(2 * math.pi) + math.log(3),
        best=(math.nan, math.nan),
    ),
    "banana": Hard(
        lambda z: -0.5 * z[0] ** 2 - 2 * (z[1] - z[0] ** 2) ** 2, 2, evidence=math.log(math.pi)
    ),
    "narrow banana": Hard(
        lambda z: -0.5 * z[0] ** 2 - 50 * (z[1] - z[0] ** 2) ** 2, 2, evidence=math.log(math.pi / 5)
    ),
    "ring": Hard(lambda z: -2 * (jnp.sqrt(z @ z + 1e-12) - 4) ** 2, 2),
    "two modes": Hard(
        lambda z: jnp.logaddexp(-0.5 * (z[0] - 4) ** 2, -0.5 * (z[0] + 4) ** 2),
        1,
        evidence=math.log(2 * math.sqrt(2 * math.pi)),
        misleads=True,
        moments=(0.0, math.sqrt(17)),
    ),
    "a quartic": Hard(lambda z: -jnp.sum(z**4), 1),
    "log gamma": Hard(lambda z: z[0] - jnp.exp(z[0]), 1, best=(HALF_LOG_2PI_E - 1.5,) * 2, evidence=0.0),
    "corners of a Laplace": Hard(
        lambda z: -jnp.sum(jnp.abs(z)),
        2,
        # E|z| = sigma sqrt(2/pi), so sigma = sqrt(pi/2) and the ELBO is -1 + log sigma + H a coordinate.
        best=(2 * (-1 + 0.5 * math.log(math.pi / 2) + HALF_LOG_2PI_E), math.nan),
        evidence=2 * math.log(2),
    ),
    # Tails
    "Cauchy": Hard(lambda z: -jnp.log1p(z[0] ** 2), 1, evidence=math.log(math.pi), nodes=401),
    "Cauchy likelihood": Hard(
        lambda z: -jnp.sum(jnp.log1p((DATA - z[0]) ** 2)) - 0.5 * (z[0] / 100) ** 2,
        1,
        nodes=401,
        misleads=True,
    ),
    "Student with 1.5 degrees": Hard(lambda z: -1.25 * jnp.sum(jnp.log1p(z**2 / 1.5)), 1, nodes=401),
    # Regressions
    "separable logistic with a wide prior": Hard(
        lambda z: logistic(z, X, SEPARABLE) - 0.5 * jnp.sum((z / 10) ** 2), 2
    ),
    "a count of a million": Hard(lambda z: 1e6 * z[0] - jnp.exp(z[0]) - 0.5 * (z[0] / 10) ** 2, 1),
    # Steps without curvature leave the start, where draws overflow, only in words.
    "overflow in single precision": Hard(
        lambda z: 3.0 * z[0] - jnp.exp(30.0 * z[0]) - 0.5 * z[0] ** 2,
        1,
        ends=(*PROPER, "non-finite"),
        single=True,
        nodes=401,
    ),
    "NaN in a far corner": Hard(lambda z: corner(z, 7.0), 2, best=(math.log(2 * math.pi),) * 2),
    # What gradients cannot see
    "a step of one nat": Hard(lambda z: -0.5 * z[0] ** 2 + 1.0 * (z[0] > 1), 1, nodes=4001),
    # No answer
    "constant": Hard(lambda z: 0 * z[0], 1, ends=NO_ANSWER),
    "a slow tail": Hard(lambda z: -0.9 * jnp.log1p(jnp.abs(z[0])) - 0.5 * z[1] ** 2, 2, ends=NO_ANSWER),
    "waves without end": Hard(lambda z: 3 * jnp.cos(z[0]), 1, ends=NO_ANSWER),
    "separable logistic without a prior": Hard(lambda z: logistic(z, X, SEPARABLE), 2, ends=NO_ANSWER),
    "perfect collinearity without a prior": Hard(
        lambda z: -0.5 * jnp.sum((Y - TWICE @ z) ** 2), 2, ends=NO_ANSWER
    ),
    # Improper, but a normal cannot follow the hyperbola, and its ELBO has an optimum.
    "a product that is all that is known": Hard(
        lambda z: -0.5 * (z[0] * z[1] - 1) ** 2, 2, ends=(*PROPER, *NO_ANSWER), misleads=True
    ),
    "NaN in a near corner": Hard(lambda z: corner(z, 1.0), 2, ends=NO_ANSWER),
    "walls of a box": Hard(
        lambda z: jnp.where(jnp.max(jnp.abs(z)) < 1, 0.0, -jnp.inf), 2, ends=NO_ANSWER
    ),
    "log of a negative number": Hard(lambda z: jnp.log(z[0]) - z[0], 1, ends=NO_ANSWER),
    "a spike in a mixture": Hard(
        lambda z: logsumexp(jnp.stack([-0.5 * z[0] ** 2, -4 * jnp.log(jnp.abs(z[0] - 1) + 1e-200)])),
        1,
        ends=NO_ANSWER,
    ),
}
