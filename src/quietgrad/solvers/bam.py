"""Batch and match: a Gaussian whose score agrees with the target's at its own draws (Cai et al. 2024).

With z_b draws of q = N(mu, Sigma) and g_b the target's gradients there, means and covariances over the
batch (zm, C) and (gm, G), and a step size s, the update has a closed form:
  U = s G + s/(1+s) gm gm',   V = Sigma + s C + s/(1+s) (mu - zm)(mu - zm)',
  Sigma+ solves Sigma+ U Sigma+ + Sigma+ = V,   mu+ = (mu + s (zm + Sigma+ gm)) / (1 + s).
Invariant under affine maps of the target, and in need of gradients only.
"""

from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from ..families import FitsQuadratic
from ..session import Candidate, Recorder
from .solver import AbstractSolver, Feedback, Step


class MatchState(NamedTuple):
    """Mean and covariance of q, and the iterations so far."""

    mean: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]
    iterations: int = 0


class BatchAndMatch(AbstractSolver):
    """`piece` updates a step, `draws` gradients each; the step size of update t is draws * dim / t.

    A batch with non-finite gradients makes q narrower by `narrow`, up to `narrowings` times in a row.
    """

    title: ClassVar[str] = "batch and match"

    draws: int = 16
    piece: int = 25
    narrow: float = 0.3
    narrowings: int = 12

    def init(self, session: Recorder, start: Candidate) -> MatchState:
        """At the start's moments."""
        del session
        assert isinstance(start.q, FitsQuadratic)
        return MatchState(np.asarray(start.q.mean(), float), start.q.host_covariance())

    def step(self, session: Recorder, state: MatchState, feedback: Feedback | None) -> Step:
        """Some updates; ends "singular" without a root of the covariance, "lost" without gradients."""
        del feedback
        mean, covariance, t = state.mean, state.covariance, state.iterations
        q = session.problem.q
        assert isinstance(q, FitsQuadratic)
        try:
            for t in range(state.iterations, state.iterations + self.piece):
                session.check()
                moved = self._update(session, mean, covariance, t)
                if moved is None:
                    return Step((), state, state.iterations, end="lost")
                mean, covariance = moved
            after = MatchState(mean, covariance, t + 1)
            return Step((member(q, mean, covariance),), after, after.iterations)
        except np.linalg.LinAlgError:
            return Step((), state, state.iterations, end="singular")

    def _update(
        self,
        session: Recorder,
        mean: Float[np.ndarray, " dim"],
        covariance: Float[np.ndarray, "dim dim"],
        t: int,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Update t; None if no batch of finite gradients was to be had."""
        root, rng = _root(covariance), session.rng("batch and match", t)
        for narrowing in range(self.narrowings):
            factor = self.narrow**narrowing
            z = mean + factor * rng.standard_normal((self.draws, len(mean))) @ root.T
            with np.errstate(all="ignore"):
                g = session.points(z)[1]
            if not np.all(np.isfinite(g)):
                continue
            moved = matched(mean, factor**2 * covariance, z, g, self.draws * len(mean) / (t + 1))
            if all(np.all(np.isfinite(part)) for part in moved):
                return moved
        return None


def matched(
    mean: Float[np.ndarray, " dim"],
    covariance: Float[np.ndarray, "dim dim"],
    z: Float[np.ndarray, "draws dim"],
    g: Float[np.ndarray, "draws dim"],
    step: float,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """The update above. With V = R R' and X = R'UR, Sigma+ = 2 R (I + (I + 4 X)^1/2)^-1 R'."""
    z_mean, g_mean = np.mean(z, axis=0), np.mean(g, axis=0)
    z_off, g_off, off = z - z_mean, g - g_mean, mean - z_mean
    damped = step / (1 + step)
    u = step * g_off.T @ g_off / len(g) + damped * np.outer(g_mean, g_mean)
    v = covariance + step * z_off.T @ z_off / len(z) + damped * np.outer(off, off)
    root = _root(v)
    values, vectors = np.linalg.eigh(root.T @ u @ root)
    turned = root @ vectors
    inverse = 2 / (1 + np.sqrt(1 + 4 * np.maximum(values, 0.0)))
    after = (turned * inverse) @ turned.T
    return (mean + step * (z_mean + after @ g_mean)) / (1 + step), 0.5 * (after + after.T)


def member(
    q: FitsQuadratic, mean: Float[np.ndarray, " dim"], covariance: Float[np.ndarray, "dim dim"]
) -> FitsQuadratic:
    """The member of q's family with these moments."""
    inverse = np.linalg.pinv(_root(covariance))
    return q.for_quadratic(mean, inverse.T @ inverse)


def _root(covariance: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """A Cholesky factor, with coordinates scaled first."""
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    unit = covariance / np.outer(scale, scale)
    try:
        return scale[:, None] * np.linalg.cholesky(unit)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(unit)
        return scale[:, None] * vectors * np.sqrt(np.maximum(values, 1e-12 * max(values.max(), 0)))
