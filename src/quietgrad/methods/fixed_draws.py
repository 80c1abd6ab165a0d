"""Sample average approximation: L-BFGS on the mean-field ELBO at fixed draws.

At fixed draws the ELBO is a smooth function that a quasi-Newton method climbs in few steps. It is only
an approximation, which more iterations overfit: the judge's draws decide when to stop and what to keep.
(Giordano, Ingram & Broderick 2024 call it DADVI.)
"""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._lbfgs import minimise
from ..clock import OPTIMISE
from ..families import MeanField
from ..judging import Terms, paired
from ..points import Points
from ..recorder import Answer, Recorder

# Iterations between two looks of the judge: at first, and at most while a piece gains so many times
# what is worth going on for.
PIECE, MOST_PIECE, GROWTH, PLENTY = 10, 20, 1.5, 20
# A climb with a rival goes on for this many pieces, and while the gap is this many of its last gains.
LEAST_PIECES, CATCHING_UP = 3, 10
# Numbers that the memory of L-BFGS may hold.
MEMORY, MEMORY_NUMBERS = 50, 2**22


class Climbed(NamedTuple):
    """Where a climb ended: its best member, its terms, the iterations, and whether it came to rest.

    `overfit` is by how many nats the ELBO at the fixed draws was above that at the judge's.
    """

    q: MeanField
    terms: Terms
    steps: int
    rested: bool
    overfit: float = 0.0


class Climb(NamedTuple):
    """How long to climb: until `patience` pieces gain less than `gain` nats, or `iterations`.

    A piece must also gain `overfit` times what the fixed draws are overfitted by, or it is the last: the
    more that is, the more there is to gain elsewhere.
    """

    gain: float = 0.5
    patience: int = 2
    iterations: int = 500
    judged_by_fresh: bool = True
    overfit: float = 0.0


def climb(
    points: Points,
    start: MeanField,
    e: Float[np.ndarray, "draws dim"],
    how: Climb,
    recorder: Recorder,
    *,
    step: int = 0,
    rival: Answer | None = None,
    give_up: bool = True,
) -> Climbed:
    """Climb from `start` at the draws `e`. Everything the judge sees is told to the recorder.

    A climb that has a `rival` gives up when it would not catch up with it at its present pace, unless
    `give_up` is off.
    """
    x = np.concatenate([np.asarray(start.loc, float), np.asarray(start.log_std, float)])
    memory = max(5, min(MEMORY, MEMORY_NUMBERS // (4 * start.dim)))
    recorder.progress.stage = "L-BFGS at fixed draws"
    with recorder.clock.phase(OPTIMISE):
        best = Climbed(start, recorder.terms(start), step, rested=False)
    recorder.tell_better(Answer(best.q, step, best.terms), rival, step)
    iterates = minimise(FixedElbo(points, e), x, memory=memory)
    entropy = -float(np.sum(start.base.host_log_prob(e))) / len(e)
    waited, done, length = 0, 0, PIECE
    while waited < how.patience and done < how.iterations:
        with recorder.clock.phase(OPTIMISE):
            piece = []
            for at in itertools.islice(iterates, min(length, how.iterations - done)):
                piece.append(at)
                recorder.check()
            if not piece:
                return best._replace(steps=step + done, rested=True)
            done += len(piece)
            loc, log_std = np.split(piece[-1].x, 2)
            q = MeanField.of(loc, log_std, start)
            terms = recorder.terms(q)
            gain, error = paired(terms, best.terms)
        overfit = entropy - piece[-1].value - terms.elbo
        enough = max(how.gain, how.overfit * (overfit - 2 * terms.error))
        # Draws that are overfitted have nothing more to say.
        slow = how.patience if enough > how.gain else waited + 1
        waited = 0 if gain > 2 * error + enough else slow
        plenty = gain > PLENTY * enough
        length = min(MOST_PIECE, int(GROWTH * length)) if plenty else PIECE
        if gain > 0 or not how.judged_by_fresh:
            best = Climbed(q, terms, step + done, rested=False, overfit=overfit)
        recorder.tell_better(Answer(best.q, step + done, best.terms), rival, step + done)
        if rival is not None and give_up and done >= LEAST_PIECES * PIECE:
            behind, _ = paired(rival.terms, best.terms)
            if behind > CATCHING_UP * max(gain, how.gain):
                break
    return best._replace(steps=step + done, rested=waited >= how.patience)


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
