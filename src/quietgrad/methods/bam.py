"""Batch and match: a Gaussian whose score agrees with the target's at its own draws (Cai et al. 2024).

With z_b draws of q = N(mu, Sigma) and g_b the target's gradients there, means and covariances over the
batch (zm, C) and (gm, G), and a step size s, the update has a closed form:
  U = s G + s/(1+s) gm gm',   V = Sigma + s C + s/(1+s) (mu - zm)(mu - zm)',
  Sigma+ solves Sigma+ U Sigma+ + Sigma+ = V,   mu+ = (mu + s (zm + Sigma+ gm)) / (1 + s).
Invariant under affine maps of the target, and in need of gradients only.
"""

import numpy as np
from jaxtyping import Float

from .._checks import whole
from .._lbfgs import minimise_together
from ..bases import Normal
from ..clock import OPTIMISE
from ..diagnostics.expected_gain import expected_gain
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..judging import paired
from ..points import Points
from ..recorder import Answer
from ..status import Status
from ..targets import Target
from .finite_start import finite_start
from .given_start import given_start, nothing_to_gain
from .method import AbstractMethod, Ending, Problem, Recorder

# Iterations between two looks of the judge, and looks without a gain that end the fit.
PIECE, PATIENCE = 25, 8
MODE_ITERATIONS = 60
# Nats that a Newton step may still promise when iterations gain no more.
WORTH = 0.5
# A batch with non-finite gradients makes q narrower by this factor; so often in a row is the end.
NARROWER, MOST_NARROWINGS = 0.3, 12
SINGULAR = "the covariance of q became so ill-conditioned that it has no root; try method 'auto'"
LOST = "gradients at the draws of q were not finite however narrow q became; try method 'auto'"


class Bam(AbstractMethod):
    """Full-rank Gaussians by batch and match, `draws` gradients an iteration, at most `iterations`.

    The step size is draws * dim / t in iteration t, as in the paper. It starts at a mode found by
    L-BFGS (not with `mode=False`), or at an instance that is better than the mode. The judge's draws
    keep the best answer; the fit ends when some looks in a row gain less than `gain` nats. Takes no
    Hessians.
    """

    draws: int = 16
    iterations: int = 1000
    gain: float = 0.1
    mode: bool = True

    def __check_init__(self):
        """Counts are whole."""
        whole(self.draws, "draws", least=2)
        whole(self.iterations, "iterations", least=1)

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """A Gaussian with any covariance, on all rows."""
        if batch_size is not None:
            return "the method 'bam' uses all rows; leave batch_size out"
        if target.hyperparameter_count:
            return "the method 'bam' does not fit hyperparameters; use 'auto' or 'sgd'"
        if not (isinstance(q, FitsQuadratic) and q.any_covariance and isinstance(q.base, Normal)):
            return f"the method 'bam' fits Gaussians with any covariance, not {type(q).__name__}"
        return None

    def run(self, problem: Problem, recorder: Recorder) -> Ending:
        """Find a start, then match."""
        q = problem.q
        assert isinstance(q, FitsQuadratic)
        points = Points(problem.target, q.dtype)
        recorder.look_with(points)
        given = given_start(problem, recorder)
        if given is None:
            start = MeanField.start_of(q, recorder.rng("mean-field"))
            begun = recorder.stage(
                "start", lambda: finite_start(points, start, recorder.rng("starts"), recorder)
            )
            mean, covariance = np.asarray(begun.loc, float), begun.host_covariance()
        elif left := nothing_to_gain(points, q, recorder, self.gain):
            recorder.confirm_start()
            return Status.CONVERGED, f"a Newton step promises {left.nats:.3f} nats at the given start"
        else:
            mean, covariance = np.asarray(q.mean(), float), q.host_covariance()
            if not self.mode:
                return self.match(points, given, recorder)
        if self.mode:
            mean = recorder.stage("mode", lambda: self._mode(points, mean, recorder))
        first = recorder.look(_member(q, mean, covariance), 0)
        if given is not None and paired(given.terms, first.terms)[0] > 0:
            first = given
        return self.match(points, first, recorder)

    def match(self, points: Points, answer: Answer, recorder: Recorder) -> Ending:
        """Iterations from an answer, whose family is told on the way."""
        q, rng = answer.q, recorder.rng("bam")
        recorder.progress.stage = "batch and match"
        assert isinstance(q, FitsQuadratic)
        mean, covariance = np.asarray(q.mean(), float), q.host_covariance()
        mark, waited, done = recorder.mark("iterations"), 0, 0
        if mark.kept is not None:
            mean, covariance, rng.bit_generator.state, waited, done = mark.kept
        while done < self.iterations and waited < PATIENCE:
            last = min(done + PIECE, self.iterations)
            with recorder.clock.phase(OPTIMISE):
                try:
                    for t in range(done, last):
                        moved = self._iterate(points, mean, covariance, t, rng)
                        recorder.check()
                        if moved is None:
                            return Status.NON_FINITE, LOST
                        mean, covariance = moved
                    member = _member(q, mean, covariance)
                except np.linalg.LinAlgError:
                    return Status.NON_FINITE, SINGULAR
                found = Answer(member, answer.step + last, recorder.terms(member))
            gained, error = paired(found.terms, recorder.best.terms)
            recorder.tell(found.q, found.step, found.terms)
            waited, done = 0 if gained > self.gain + error else waited + 1, last
            mark.keep((mean, covariance, rng.bit_generator.state, waited, done))
        return self._ending(points, recorder, rested=waited >= PATIENCE)

    def _ending(self, points: Points, recorder: Recorder, *, rested: bool) -> Ending:
        best = recorder.best.q
        assert isinstance(best, FitsQuadratic)
        with recorder.clock.phase(OPTIMISE):
            left = expected_gain(points, best, recorder.rng("left"))
        promise = f"a Newton step promises {left.nats:.3f} ± {left.error:.3f} nats more"
        if rested and left.nats - 2 * left.error < WORTH:
            recorder.confirm_start()
            return Status.CONVERGED, f"iterations gain no more, and {promise}"
        return Status.BUDGET, f"the iterations were used up or gain no more, but {promise}; allow more"

    def _mode(self, points: Points, start: Float[np.ndarray, " dim"], recorder: Recorder) -> np.ndarray:
        def loss(z: Float[np.ndarray, "k dim"]) -> tuple[np.ndarray, np.ndarray]:
            recorder.check()
            value, slope = points(z)
            return -value, -slope

        with recorder.clock.phase(OPTIMISE), np.errstate(all="ignore"):
            (found,) = minimise_together(loss, start[None], iterations=MODE_ITERATIONS)
        return found.x

    def _iterate(
        self,
        points: Points,
        mean: Float[np.ndarray, " dim"],
        covariance: Float[np.ndarray, "dim dim"],
        t: int,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """One update; None if no batch of finite gradients was to be had."""
        root = _root(covariance)
        for narrowing in range(MOST_NARROWINGS):
            factor = NARROWER**narrowing
            z = mean + factor * rng.standard_normal((self.draws, len(mean))) @ root.T
            with np.errstate(all="ignore"):
                g = points(z)[1]
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


def _root(covariance: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """A Cholesky factor, with coordinates scaled first."""
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    unit = covariance / np.outer(scale, scale)
    try:
        return scale[:, None] * np.linalg.cholesky(unit)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(unit)
        return scale[:, None] * vectors * np.sqrt(np.maximum(values, 1e-12 * max(values.max(), 0)))


def _member(
    q: FitsQuadratic, mean: Float[np.ndarray, " dim"], covariance: Float[np.ndarray, "dim dim"]
) -> FitsQuadratic:
    root = _root(covariance)
    inverse = np.linalg.pinv(root)
    return q.for_quadratic(mean, inverse.T @ inverse)
