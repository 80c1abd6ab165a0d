"""A bent Gaussian by stochastic steps on the host: Adam with path gradients, and no program of its own.

In the coordinates of the Gaussian the posterior has unit scales, and so has every parameter of the bend:
one rate suits all. The gradient sticks to the landing (Roeder et al. 2017), d v / d parameters times
C'(grad f - grad log q), whose noise vanishes as q approaches the posterior.
"""

import math
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from ..evaluation.points import Points, sobol_pairs
from ..families import Curved, FullRank
from ..families.bend import HostBend
from ..session import Candidate, Recorder
from .solver import AbstractSolver, Feedback, Step


class BendingState(NamedTuple):
    """The Gaussian, the bend, the next round's rate, and rounds and iterations so far."""

    gaussian: FullRank
    bend: HostBend
    rate: float
    rounds: int = 0
    iterations: int = 0


class Bending(AbstractSolver):
    """A round of Adam steps whose rate falls from `rate` / sqrt(dim) to nothing by a cosine.

    A coordinate's scale has a term for each other one, whose noise adds up. A round that clearly lost is
    taken back and the rate halved. The first round has `length` steps, each further one twice as many,
    with `pairs` quasi-random antithetic pairs of draws each. Adam's averages are those of `decay`. The
    gradient by a parameter is cut at `most` times its root mean square: a single draw in a steep place
    must not lead away.
    """

    title: ClassVar[str] = "bending a Gaussian"

    rate: float = 0.1
    length: int = 100
    pairs: int = 64
    decay: tuple[float, float] = (0.9, 0.99)
    most: float = 2.0

    def init(self, session: Recorder, start: Candidate) -> BendingState:
        """At the start's own bend."""
        del session
        assert isinstance(start.q, Curved)
        rate = self.rate / math.sqrt(start.q.dim)
        return BendingState(start.q.gaussian, HostBend.of(start.q.bend), rate)

    def lost(self, state: BendingState, best: Curved) -> BendingState:
        """Back to the best bend, with half the rate."""
        return state._replace(bend=HostBend.of(best.bend), rate=state.rate / 2)

    def step(self, session: Recorder, state: BendingState, feedback: Feedback | None) -> Step:
        """One round."""
        if feedback is not None and feedback.change.clearly_below():
            assert isinstance(feedback.best.q, Curved)
            state = self.lost(state, feedback.best.q)
        length, gaussian, pairs = self.length * 2**state.rounds, state.gaussian, self.pairs
        # Read once: modules are slow to ask, and these are asked in every step.
        base, dim, points = gaussian.base, gaussian.dim, session.points
        loc, root = np.asarray(gaussian.loc, float), gaussian.host_root()
        rng = session.rng(f"bending {state.bend.order[0]}", state.rounds)
        x = np.concatenate([state.bend.own.ravel(), state.bend.pairs.ravel()])
        first, second, late, count = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x), 0
        (slow, slower), most = self.decay, self.most
        with np.errstate(all="ignore"):
            for t in range(1, length + 1):
                session.check()
                e = sobol_pairs(base, pairs, dim, rng)
                g = _gradient(points, loc, root, _with(state.bend, x), e)
                if not np.all(np.isfinite(g)):
                    continue
                usual = np.sqrt(second / (1 - slower ** (t - 1))) if t > 1 else np.abs(g)
                g = np.clip(g, -most * usual, most * usual) if t > 1 else g
                first, second = slow * first + (1 - slow) * g, slower * second + (1 - slower) * g**2
                rate = state.rate * 0.5 * (1 + math.cos(math.pi * t / length))
                move = first / (1 - slow**t) / (np.sqrt(second / (1 - slower**t)) + 1e-8)
                x = x + rate * move
                if 2 * t > length:
                    late, count = late + x, count + 1
        iterations = state.iterations + length
        after = state._replace(bend=_with(state.bend, x), rounds=state.rounds + 1, iterations=iterations)
        members = [Curved.made_of(after.bend, gaussian)]
        if count:
            members.append(Curved.made_of(_with(state.bend, late / count), gaussian))
        return Step(tuple(members), after, iterations)


def _with(bend: HostBend, x: Float[np.ndarray, " n"]) -> HostBend:
    """A bend with other parameters, all of them in one vector."""
    own, pairs = bend.own, bend.pairs
    return HostBend(x[: own.size].reshape(own.shape), x[own.size :].reshape(pairs.shape), bend.order)


def _gradient(
    points: Points,
    loc: Float[np.ndarray, " dim"],
    root: Float[np.ndarray, "dim dim"],
    bend: HostBend,
    e: Float[np.ndarray, "draws dim"],
) -> Float[np.ndarray, " n"]:
    """Of the ELBO by the parameters, from draws; those without a density do not count.

    `root` is C of the Gaussian N(loc, C C') for the normal base, whose variance is one.
    """
    bent = bend.at(e)
    slope = points(loc + bent.image @ root.T)[1]
    g = slope @ root - bent.score()
    g = np.where(np.all(np.isfinite(g), axis=1)[:, None], g, 0.0)
    pulled = bent.pull(g)
    return np.concatenate([pulled.own.ravel(), pulled.pairs.ravel()])
