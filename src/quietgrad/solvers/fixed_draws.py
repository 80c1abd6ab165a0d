"""Sample average approximation: L-BFGS on the mean-field ELBO at fixed draws.

At fixed draws the ELBO is a smooth function that a quasi-Newton method maximises in few iterations. It
is an approximation, which more iterations overfit: the evaluator's draws decide when to stop and what to
keep. (Giordano, Ingram & Broderick 2024 call it DADVI.)
"""

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._numerics.lbfgs import LbfgsState, iterate
from .._util.checks import whole
from ..diagnostics.propriety import nowhere_finite
from ..evaluation.points import Points, equal_magnitude_pairs, sobol_pairs
from ..families import MeanField
from ..session import Candidate, Ended, Recorder
from ..session.clock import OPTIMISE
from .solver import AbstractSolver, Feedback, Step

PAIRS, NUMBERS = 16, 2**22
# How often a start is narrowed by a factor of ten, and the log scale of one that is narrow.
NARROWER, NARROW = 4, -4.0
# Random points at which a density is looked for in the end: one of them has ten numbers of given signs.
ANYWHERE = 1024


class FixedDrawsState(NamedTuple):
    """A member, the draws, the search at them, and its iterations so far."""

    like: MeanField
    e: Float[np.ndarray, "draws dim"]
    search: LbfgsState
    iterations: int = 0


class FixedDraws(AbstractSolver):
    """L-BFGS for means and log scales at `draws` fixed draws, `piece` iterations a step.

    The draws are antithetic pairs in which every coordinate has the same magnitudes
    (`equal_magnitude_pairs`), because what fixed draws overfit first is a coordinate whose draws happen
    to be small. `memory` pairs are remembered by L-BFGS: 50 halve its iterations against 10. Where
    coordinates are many, draws and memory are fewer: `draw_numbers` and `memory_numbers` bound the
    arrays.
    """

    title: ClassVar[str] = "L-BFGS at fixed draws"

    draws: int = eqx.field(converter=lambda n: whole(n, "draws", least=2), default=32)
    piece: int = eqx.field(converter=lambda n: whole(n, "piece", least=1), default=10)
    memory: int = 50
    draw_numbers: int = 2**20
    memory_numbers: int = 2**22

    def init(self, session: Recorder, start: Candidate) -> FixedDrawsState:
        """Draws that suit the start, and the search there."""
        q = start.q
        assert isinstance(q, MeanField)
        pairs = max(2, min(self.draws // 2, self.draw_numbers // (2 * q.dim)))
        return self.at(q, equal_magnitude_pairs(q.base, pairs, q.dim, session.rng("fixed draws")))

    def at(self, q: MeanField, e: Float[np.ndarray, "draws dim"]) -> FixedDrawsState:
        """The state of a search that begins at q, at draws that were made elsewhere."""
        x = np.concatenate([np.asarray(q.loc, float), np.asarray(q.log_std, float)])
        return FixedDrawsState(q, e, LbfgsState.begin(x))

    def step(self, session: Recorder, state: FixedDrawsState, feedback: Feedback | None) -> Step:
        """One piece; stationary where L-BFGS finds nothing lower."""
        del feedback
        elbo, like = FixedElbo(session.points, state.e), state.like
        memory = max(5, min(self.memory, self.memory_numbers // (4 * like.dim)))

        def loss(x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
            session.check()
            return elbo(x)

        search, done = iterate(loss, state.search, self.piece, memory=memory)
        after = FixedDrawsState(like, state.e, search, state.iterations + done)
        if not done:
            return Step((), after, after.iterations, end="stationary")
        loc, log_std = np.split(search.at.x, 2)
        return Step((MeanField.of(loc, log_std, like),), after, after.iterations)


class FixedElbo:
    """Minus the mean-field ELBO at the draws `e`, up to a constant, and its gradient."""

    def __init__(self, points: Points, e: Float[np.ndarray, "draws dim"]):
        self._points, self._e = points, e.astype(points.dtype)
        self._share = np.full(len(e), 1 / len(e))

    def __call__(self, x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
        """At means and logarithms of standard deviations, one after the other."""
        dim, e = len(x) // 2, self._e
        loc, log_std = x[:dim], x[dim:]
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.exp(log_std)
            # Points in the precision of the program: it would round them anyway.
            z = std.astype(e.dtype) * e
            z += loc.astype(e.dtype)
            value, slope = self._points.as_computed(z)
            downhill = np.empty(2 * dim)
            downhill[:dim] = -(self._share @ slope)
            downhill[dim:] = -std * (np.einsum("ij,ij->j", slope, e) / len(e)) - 1
            loss = -float(self._share @ value + log_std.sum())
        return loss, downhill


def narrower(start: MeanField, by: float) -> MeanField:
    """The start with its log scales lowered."""
    return MeanField.of(np.asarray(start.loc), np.asarray(start.log_std) - by, start)


def finite_start(points: Points, start: MeanField, recorder: Recorder) -> MeanField:
    """A start at whose draws the density is finite: narrower, then at zero, then narrow elsewhere."""
    rng = recorder.rng("starts")
    pairs = max(2, min(PAIRS, NUMBERS // (2 * start.dim)))
    e = sobol_pairs(start.base, pairs, start.dim, rng)
    loc, log_std = np.asarray(start.loc, float), np.asarray(start.log_std, float)
    tried: list[np.ndarray] = []

    def places() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for at in (loc, 0 * loc):
            yield from ((at, log_std - k * math.log(10)) for k in range(NARROWER + 1))
        z = rng.standard_normal((max(NARROWER, min(ANYWHERE, NUMBERS // start.dim)), start.dim))
        with recorder.clock.phase(OPTIMISE):
            values, slopes = points(z)
        tried.extend(z)
        height = np.where(np.all(np.isfinite(slopes), axis=1), values, -np.inf)
        best = np.argsort(-np.nan_to_num(height, nan=-np.inf))[:NARROWER]
        yield from ((z[i], np.full(start.dim, NARROW)) for i in best if math.isfinite(height[i]))

    for place, scales in places():
        z = place + np.exp(scales) * e
        with recorder.clock.phase(OPTIMISE):
            values, slopes = points(z)
        if np.all(np.isfinite(values)) and np.all(np.isfinite(slopes)):
            return MeanField.of(place, scales, start)
        tried.extend(z)
        recorder.check()
    raise Ended(*nowhere_finite(recorder.problem.target, np.stack(tried)).ending)
