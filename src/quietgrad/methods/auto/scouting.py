"""Where many starts lead, roughly and all at once: searches that share their calls of one program.

Where Hessians can be had, each start leads to a mode: L-BFGS together, then Newton steps to the top.
Else the mean-field ELBO is climbed from all starts at the same few fixed draws: at equal draws it is one
function, so that starts which lead to the same answer meet.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..._lbfgs import minimise_together
from ...clock import OPTIMISE
from ...families import FitsQuadratic, MeanField
from ...host_draws import levelled_pairs
from ...points import Points
from ...recorder import Answer, Recorder
from ..method import Scouted
from ..mode import ITERATIONS, MEMORY, loss_of, settled
from .starts import around_mode, narrower

# Pairs of fixed draws, and iterations, of a climb that only has to tell where it is going.
PAIRS, CLIMB_ITERATIONS = 4, 60
# Squared length in posterior sds at which a search stands at the top of a mode that is known already.
AT_THE_TOP = 0.01


def scout_modes(
    points: Points, starts: Sequence[MeanField], q: FitsQuadratic, recorder: Recorder
) -> list[Scouted]:
    """The mode that each start leads to, and the member of q's family that suits it."""
    centers = np.stack([np.asarray(start.loc, float) for start in starts])

    with recorder.clock.phase(OPTIMISE), np.errstate(all="ignore"):
        found = minimise_together(
            loss_of(points, recorder), centers, iterations=ITERATIONS, memory=MEMORY
        )
        known, scouted = [], []
        for start, end in zip(starts, found, strict=True):
            near = next((seen for mode, seen in known if _at_top(end.x - mode.z, mode.precision)), None)
            if near is not None:
                scouted.append(near)
                continue
            mode = settled(points, end.x, -end.value, recorder) if np.isfinite(end.value) else None
            member = None if mode is None else around_mode(q, mode, recorder)
            if mode is None or member is None:
                scouted.append(Scouted(start, None))
                continue
            std = np.sqrt(np.diagonal(np.linalg.inv(mode.precision)))
            first = MeanField.of(mode.z, np.asarray(start.log_std), start)
            # Where the posterior is, and how wide, rather than where draws of a member happened to be.
            terms = member.terms._replace(mean=mode.z, std=std)
            scouted.append(Scouted(first, Answer(member.q, 0, terms)))
            known.append((mode, scouted[-1]))
    return scouted


def scout_climbs(points: Points, starts: Sequence[MeanField], recorder: Recorder) -> list[Scouted]:
    """Where each start leads at the same few draws, and the judge's opinion of it."""
    starts = [narrower(start) for start in starts]
    first = starts[0]
    e = levelled_pairs(first.base, PAIRS, first.dim, recorder.rng("scouts"))
    x = np.stack([np.concatenate([np.asarray(s.loc, float), s.log_std]) for s in starts])

    def loss(x: Float[np.ndarray, "k n"]) -> tuple[np.ndarray, np.ndarray]:
        recorder.check()
        loc, log_std = np.split(x, 2, axis=1)
        std = np.exp(log_std)
        z = loc[:, None] + std[:, None] * e
        value, slope = points(z.reshape(-1, first.dim))
        value, slope = value.reshape(len(x), -1), slope.reshape(z.shape)
        up = np.concatenate([np.mean(slope, axis=1), std * np.mean(slope * e, axis=1) + 1], axis=1)
        return -(np.mean(value, axis=1) + np.sum(log_std, axis=1)), -up

    scouted = []
    with recorder.clock.phase(OPTIMISE), np.errstate(all="ignore"):
        found = minimise_together(loss, x, iterations=CLIMB_ITERATIONS, memory=MEMORY)
        for start, end in zip(starts, found, strict=True):
            recorder.check()
            loc, log_std = np.split(end.x, 2)
            there = MeanField.of(loc, log_std, start) if np.isfinite(end.value) else start
            terms = recorder.terms(there)
            answer = Answer(there, 0, terms) if math.isfinite(terms.elbo) else None
            scouted.append(Scouted(there if answer is not None else start, answer))
    return scouted


def _at_top(away: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]) -> bool:
    return bool(away @ precision @ away < AT_THE_TOP)
