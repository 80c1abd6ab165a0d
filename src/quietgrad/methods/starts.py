"""Where methods start: from a member that the user gave, and where many starts lead, roughly.

Of many starts all are searched at once, with shared calls of one program. Where Hessians can be had,
each start leads to a mode: L-BFGS together, then Newton steps to the top. Else the mean-field ELBO is
maximised from all starts at the same few fixed draws: at equal draws it is one function, so that starts
which lead to the same answer meet.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .._numerics.lbfgs import minimise_together
from ..diagnostics.expected_gain import conclusive_gain, expected_gain
from ..evaluation.points import Points, equal_magnitude_pairs
from ..families import FitsQuadratic, MeanField
from ..session import Candidate, Problem, Recorder
from ..session.clock import OPTIMISE
from ..solvers import ModeSearch
from ..solvers.fixed_draws import narrower
from ..status import Status
from .method import Ending, Piloted

# The scale of a coordinate whose draws are all the same.
LEAST_STD = 1e-6
# Pairs of fixed draws, and iterations, of a search that only has to tell where it is going.
PAIRS, ITERATIONS, MEMORY = 4, 60, 10
# Squared length in posterior sds at which a search stands at the top of a mode that is known already.
AT_THE_TOP = 0.01


def given_start(problem: Problem, session: Recorder) -> Candidate | None:
    """The start that the user gave, evaluated, if there is one and its ELBO is finite."""
    if not problem.start_given:
        return None
    begun = session.evaluate(problem.q, 0)
    return begun if math.isfinite(begun.terms.elbo) else None


def mean_field_at(given: Candidate) -> MeanField:
    """The mean-field member with the mean and the scales of the start; the start itself if it is one."""
    q = given.q
    if isinstance(q, MeanField):
        return q
    if isinstance(q, FitsQuadratic) and math.isfinite(q.base.variance):
        mean, variance = np.asarray(q.mean(), float), np.diagonal(q.host_covariance())
        return MeanField.of(mean, 0.5 * np.log(variance / q.base.variance), q)
    # Of the points at which the evaluator has seen it.
    return MeanField.of(given.terms.mean, np.log(np.maximum(given.terms.std, LEAST_STD)), q)


def stationary_start(given: Candidate, session: Recorder, worth: float) -> Ending | None:
    """The ending of a fit at whose start a Newton step is not expected to gain `worth` nats."""
    q = given.q
    if not isinstance(q, FitsQuadratic) or not math.isfinite(q.base.variance):
        return None
    rng, points = session.rng("expected gain at the start"), session.points
    with session.clock.phase(OPTIMISE):
        left = conclusive_gain(expected_gain(points, q, rng), points, q, rng, worth=worth)
    if not left.non_negative.clearly_below(worth):
        return None
    session.confirm_start()
    session.note("search stop", left=left.nats, left_error=left.error)
    return Status.CONVERGED, f"at the given start a Newton step is expected to gain {left}"


def mean_field_start(
    problem: Problem, session: Recorder, given: Candidate | None = None, which: str = ""
) -> MeanField:
    """The mean-field start that goes with a problem."""
    if problem.first is not None:
        return problem.first
    if given is not None and math.isfinite(given.terms.elbo):
        return mean_field_at(given)
    return MeanField.start_of(problem.q, session.rng(f"mean-field{which}"))


def pilot_modes(
    solver: ModeSearch,
    points: Points,
    starts: Sequence[MeanField],
    q: FitsQuadratic,
    session: Recorder,
) -> list[Piloted]:
    """The mode that each start leads to, and the member of q's family that suits it."""
    centers = np.stack([np.asarray(start.loc, float) for start in starts])
    known, scouted = [], []
    with session.clock.phase(OPTIMISE), np.errstate(all="ignore"):
        found = solver.search(points, centers, session.check)
        for start, (z, loss) in zip(starts, found, strict=True):
            near = next((seen for mode, seen in known if _at_top(z - mode.z, mode.precision)), None)
            if near is not None:
                scouted.append(near)
                continue
            mode = solver.settle(points, z, loss, session.check) if np.isfinite(loss) else None
            member = None if mode is None else solver.member(q, mode, session)
            if mode is None or member is None:
                scouted.append(Piloted(start, None))
                continue
            std = np.sqrt(np.diagonal(np.linalg.inv(mode.precision)))
            first = MeanField.of(mode.z, np.asarray(start.log_std), start)
            # Where the posterior is, and how wide, rather than where draws of a member happened to be.
            terms = member.terms._replace(mean=mode.z, std=std)
            scouted.append(Piloted(first, member._replace(terms=terms)))
            known.append((mode, scouted[-1]))
    return scouted


def pilot_searches(
    points: Points, starts: Sequence[MeanField], session: Recorder, *, shrink: float
) -> list[Piloted]:
    """Where each start leads at the same few draws, and its terms at the evaluator's."""
    starts = [narrower(start, shrink) for start in starts]
    first = starts[0]
    e = equal_magnitude_pairs(first.base, PAIRS, first.dim, session.rng("pilot"))
    x = np.stack([np.concatenate([np.asarray(s.loc, float), s.log_std]) for s in starts])

    def loss(x: Float[np.ndarray, "k n"]) -> tuple[np.ndarray, np.ndarray]:
        session.check()
        loc, log_std = np.split(x, 2, axis=1)
        std = np.exp(log_std)
        z = loc[:, None] + std[:, None] * e
        value, slope = points(z.reshape(-1, first.dim))
        value, slope = value.reshape(len(x), -1), slope.reshape(z.shape)
        up = np.concatenate([np.mean(slope, axis=1), std * np.mean(slope * e, axis=1) + 1], axis=1)
        return -(np.mean(value, axis=1) + np.sum(log_std, axis=1)), -up

    scouted = []
    with session.clock.phase(OPTIMISE), np.errstate(all="ignore"):
        found = minimise_together(loss, x, iterations=ITERATIONS, memory=MEMORY)
        for start, end in zip(starts, found, strict=True):
            session.check()
            loc, log_std = np.split(end.x, 2)
            there = MeanField.of(loc, log_std, start) if np.isfinite(end.value) else start
            candidate = session.candidate(there, 0)
            finite = math.isfinite(candidate.terms.elbo)
            scouted.append(Piloted(there, candidate) if finite else Piloted(start, None))
    return scouted


def _at_top(away: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]) -> bool:
    return bool(away @ precision @ away < AT_THE_TOP)
