"""Draws of the posterior by many chains that go on from q's: what to use where q itself is off.

Importance weights correct a q that is wide enough everywhere. Where it is not, the chains of the verdict
go on, in q's coordinates and in the metric of their own states, until every mean and sd is known well.
Chains are independent of each other, so that the error of a mean is that of the chains' averages, and
needs no estimate of autocorrelations. A slow direction shows as averages that differ between chains.
The first half of the moves is left out: chains that are worth several draws each have forgotten their
start by then.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .budget import Budget
from .chains import Sampler
from .charts import AbstractChart
from .metric import Metric
from .settings import Diagnostics
from .tolerance import significance
from .watched import Watched

# Arrays of states that are held at once.
ARRAYS = 3


class Begun(NamedTuple):
    """Chains that have begun: where they are, in which chart and metric."""

    chart: AbstractChart
    metric: Metric
    states: Float[np.ndarray, "chains base"]


@dataclasses.dataclass(frozen=True)
class ChainDraws:
    """Draws z of the posterior by `chains` of `moves`, on the unconstrained scale.

    `effective` is the least number of independent draws that they are worth, over all means, and
    `scale_error` the largest standard error of the log of an sd. `enough` is whether they can be used,
    and `why` says why not.
    """

    z: Float[np.ndarray, "draws dim"]
    chains: int
    moves: int
    effective: float
    scale_error: float
    diverged: float
    enough: bool
    why: str

    def __str__(self) -> str:
        worth = f"worth at least {self.effective:,.0f} of the posterior" if self.enough else self.why
        return f"{self.chains} chains of {self.moves:,} moves from q's draws: {worth}"


class Settled(NamedTuple):
    """How well averages over chains are known, in the worst of the numbers that are watched.

    `drift` is the change between halves of the moves, relative to what noise explains.
    """

    effective: float
    scale_error: float
    drift: float
    name: str

    def objection(self, diverged: float, settings: Diagnostics) -> str:
        """Why the chains are not enough; empty if they are."""
        if diverged > settings.most_diverged:
            return f"{diverged:.2%} of their moves diverge, so that a narrow part may be missed"
        if self.effective * (settings.precise * settings.mean) ** 2 < 1:
            return f"their averages of {self.name} are worth {self.effective:,.0f} draws only"
        if self.scale_error > settings.precise * settings.wide:
            return f"an sd is known to {self.scale_error:.0%} only"
        return f"{self.name} and others still move" if self.drift > 1 else ""

    def within_reach(self, times: float, diverged: float, settings: Diagnostics) -> bool:
        """Whether so many times the moves would be enough, as effective sizes grow with them.

        Twice over: chains that have just forgotten their start count for less than they will.
        """
        grown = self._replace(
            effective=2 * times * self.effective,
            scale_error=self.scale_error / math.sqrt(2 * times),
            drift=0.0,
        )
        return not grown.objection(diverged, settings)


def run_on(
    begun: Begun, watched: Watched, rng: np.random.Generator, settings: Diagnostics, budget: Budget
) -> ChainDraws | None:
    """Go on until all is known well enough, or moves, time or memory are used up.

    Moves that diverge are tried again with smaller steps: what is left of them is due to a part of the
    posterior that is narrower than any step, and not to steps that are too large everywhere. None if
    there is no time for the first moves.
    """
    count = len(begun.states)
    moves = sum(settings.warm_up) + settings.step_moves + settings.first_moves
    if not budget.affords(moves * settings.most_leapfrogs * count):
        budget.further.append("long chains from q's draws")
        return None
    sampler = Sampler(begun.chart, begun.metric, begun.states, rng, settings)
    budget.stage("long chains, warm-up")
    sampler.aim_at(settings.long_acceptance[0], settings.long_leapfrogs[0])
    for moves in settings.warm_up:
        sampler.advance(moves)
        sampler.forget(_metric_of_states(begun.metric, sampler.states))
    most = min(settings.most_moves, settings.most_numbers // (ARRAYS * begun.states.size))
    found, last = None, settings.long_leapfrogs[0]
    for acceptance, leapfrogs in zip(settings.long_acceptance, settings.long_leapfrogs, strict=True):
        # The pace is that of the last moves, whose trajectories had fewer steps.
        ahead = (settings.step_moves + settings.first_moves) * leapfrogs / last
        if found is not None and not budget.affords(ahead):
            budget.further.append("long chains from q's draws with smaller steps")
            break
        last = leapfrogs
        sampler.aim_at(acceptance, leapfrogs)
        # States count only from where the step is fixed: one that follows them is no Markov chain's.
        sampler.advance(settings.step_moves)
        sampler.forget()
        found = _until_known(sampler, watched, most, settings, budget)
        if found.diverged <= settings.most_diverged:
            break
    assert found is not None
    return dataclasses.replace(found, z=rng.permutation(found.z))


def _until_known(
    sampler: Sampler, watched: Watched, most: int, settings: Diagnostics, budget: Budget
) -> ChainDraws:
    """Moves of chains with a fixed step, twice as many each time, until they are enough."""
    done, ahead = 0, settings.first_moves
    while True:
        budget.stage(f"long chains, {done + ahead:,} moves")
        with budget.paced(ahead):
            chains = sampler.advance(ahead)
        done += ahead
        kept = chains.z[done // 2 :]
        kept = kept[:: max(1, -(-len(kept) // settings.judged_moves))]
        found = settled(watched, kept, settings)
        why = found.objection(sampler.diverged, settings)
        ahead = done
        if not why or done + ahead > most or not budget.affords(ahead):
            break
        if done >= settings.tried_moves and not found.within_reach(
            most / done, sampler.diverged, settings
        ):
            break
    z, errors = kept.reshape(-1, kept.shape[-1]), (found.effective, found.scale_error, sampler.diverged)
    return ChainDraws(z, chains.start.shape[0], done, *errors, enough=not why, why=why)


def settled(
    watched: Watched, z: Float[np.ndarray, "moves chains dim"], settings: Diagnostics
) -> Settled:
    """Of means, of squared distances from them, and of the first half against the second."""
    moves, chains, dim = z.shape
    x = watched(z.reshape(-1, dim)).reshape(moves, chains, -1)
    with np.errstate(all="ignore"):
        center, variance = np.mean(x, axis=(0, 1)), np.var(x, axis=(0, 1))
        worth = chains * variance / np.var(np.mean(x, axis=0), axis=0, ddof=1)
        squares = np.mean((x - center) ** 2, axis=0)
        error = 0.5 * np.std(squares, axis=0, ddof=1) / math.sqrt(chains) / variance
        half = moves // 2
        change = np.mean(x[half:], axis=0) - np.mean(x[:half], axis=0)
        noise = np.std(change, axis=0, ddof=1) / math.sqrt(chains)
        # Beyond what noise makes of the largest of all, and large enough to matter.
        much = settings.sharp_mean * np.sqrt(variance)
        drift = np.abs(np.mean(change, axis=0)) / np.maximum(
            significance(x.shape[-1], settings) * noise, much
        )
    worth, error = np.nan_to_num(worth, nan=0.0), np.nan_to_num(error, nan=math.inf)
    worst = int(np.argmin(worth))
    drift = float(np.max(np.nan_to_num(drift, nan=math.inf)))
    return Settled(float(worth[worst]), float(np.max(error)), drift, watched.name(worst))


def _metric_of_states(old: Metric, states: Float[np.ndarray, "moves chains base"]) -> Metric:
    """The covariance of late states, drawn towards the old metric where states are few."""
    late = states[len(states) // 2 :].reshape(-1, states.shape[-1])
    center, dim = np.mean(late, axis=0), late.shape[1]
    w = Metric(center, old.root).whiten(late)
    # Successive states of a chain are correlated: every other one counts.
    count = len(late) / 2
    if count < 2 * dim:
        return Metric(center, old.root * np.sqrt((count * np.var(w, axis=0) + 1) / (count + 1)))
    share = count / (count + dim)
    values, vectors = np.linalg.eigh(share * np.cov(w.T).reshape(dim, dim) + (1 - share) * np.eye(dim))
    root = old.root if old.dense else np.diag(old.root)
    return Metric(center, root @ (vectors * np.sqrt(np.maximum(values, np.finfo(float).tiny))))
