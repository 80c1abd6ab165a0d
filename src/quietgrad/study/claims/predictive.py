"""Claim 11: what ELBO gains are worth on held-out rows."""

import math

import numpy as np

from ..plateau import on_plateau
from ..records import Record
from ..summary import settled
from .claim import Claim, Part, Verdict, conclude, missing
from .evidence import DRAWS, ESTIMATORS, NETWORK, RESPECTABLE, Evidence, Setting, by_rep
from .interval import mean
from .measures import late_lppd

# "About 3 nats" of gain: something, and not more than twice that.
LATE = (0.0, 6.0)
EARLY = 100.0
RANGE = (-145.0, -135.0)


def lppd_gains(evidence: Evidence) -> Claim:
    """Claim 11."""
    task = evidence.task(NETWORK)
    runs = [
        run
        for label in ESTIMATORS
        for setting in _settings(evidence, label)
        for (run,) in evidence.match(setting, label)
        if np.any(np.isfinite(run.column("lppd")))
    ]
    parts = [missing("needs mean-field runs on redwine with test lppd")]
    if runs:
        parts = [*_gains(runs), _settles(runs, str(task))]
    return conclude(
        11,
        "Full-batch BNN: late ELBO gains are worth about 3 nats of test lppd on 100 points, early ones "
        "hundreds; lppd settles in (-145, -135).",
        f"Mean-field, the paper's estimators. Early ends where a run is within {RESPECTABLE:g} nats of "
        "its own best ELBO. Gain in test lppd from there to the end of the run "
        f"({LATE[0]:g} to {LATE[1]:g} asked for) and from the start to there (above {EARLY:g}). "
        "Settles: the mean of the last tenth of the evaluations is in the range for four runs in "
        "five; fewer than half refutes it.",
        parts,
        evidence.stand_ins([NETWORK]),
    )


def _settings(evidence: Evidence, label: str) -> list[Setting]:
    return evidence.settings(label, models=[NETWORK], families=["mean-field"], draws=DRAWS)


def _gains(runs: list[Record]) -> list[Part]:
    found = [(run.cell.rep, *_split(run)) for run in runs if on_plateau(run)]
    known = [one for one in found if all(map(math.isfinite, one[1:]))]
    if not known:
        return [missing("gains in lppd: no run had reached a plateau; longer runs could tell")]
    late = mean([float(np.median(v)) for v in by_rep((r, late) for r, _, late in known).values()])
    early = mean([float(np.median(v)) for v in by_rep((r, early) for r, early, _ in known).values()])
    return [
        late.part(
            late.within(*LATE),
            f"after coming within {RESPECTABLE:g} nats the test lppd changes by {late.middle:+.1f} nats",
            f"late {late.middle:+.1f} nats",
            "+.1f",
        ),
        early.part(
            early.within(EARLY, math.inf),
            f"before that it changes by {early.middle:+.0f} nats",
            f"early {early.middle:+.0f} nats",
            "+.0f",
        ),
    ]


def _split(run: Record) -> tuple[float, float]:
    """Gain in lppd until the ELBO is respectable, and after that."""
    elbo, lppd = settled(run.elbo), run.column("lppd")
    known = np.flatnonzero(np.isfinite(lppd))
    there = int(np.argmax(elbo >= np.max(elbo) - RESPECTABLE))
    after = known[known >= there]
    if len(known) < 3 or len(after) == 0:
        return math.nan, math.nan
    turn = float(lppd[after[0]])
    return turn - float(lppd[known[0]]), late_lppd(run) - turn


def _settles(runs: list[Record], task: str) -> Part:
    ended = [run for run in runs if on_plateau(run)]
    if not ended:
        return missing("where lppd settles: no run had reached a plateau; longer runs could tell")
    ends = [late_lppd(run) for run in ended]
    span = f"{min(ends):.1f} to {max(ends):.1f}"
    if task != NETWORK[0]:
        why = f"the range belongs to {NETWORK[0]}; on {task} test lppd ends at {span}"
        return Part(Verdict.CANNOT_TELL, why, f"ends at {span}", absent=True)
    inside = sum(RANGE[0] < end < RANGE[1] for end in ends) / len(ends)
    verdict = Verdict.HOLDS if inside >= 0.8 else Verdict.CANNOT_TELL
    return Part(
        Verdict.DOES_NOT if inside < 0.5 else verdict,
        f"{inside:.0%} of the {len(ends)} runs (of {len(runs)}) that reached a plateau end in the range",
        f"ends at {span}",
        f"{inside:.0%} of {len(ends)} runs",
    )
