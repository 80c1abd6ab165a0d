"""Claim 11: what ELBO gains are worth on held-out rows."""

import math

import numpy as np

from quietgrad.study.claim import Claim, Part, conclude, missing, said
from quietgrad.study.interval import mean
from quietgrad.study.plateau import on_plateau
from quietgrad.study.records import Record
from quietgrad.study.summary import settled

from .evidence import DRAWS, ESTIMATORS, NETWORK, RESPECTABLE, Evidence, Setting, by_rep
from .measures import late_lppd

# "Only a 3 nats improvement" of QuadCV over NoCV: a gain, and not more than twice that.
LATE = (0.0, 6.0)
EARLY = 100.0


def lppd_gains(evidence: Evidence) -> Claim:
    """Claim 11."""
    runs = [
        run
        for label in ESTIMATORS
        for setting in _settings(evidence, label)
        for (run,) in evidence.match(setting, label)
        if np.any(np.isfinite(run.column("lppd")))
    ]
    parts = [missing("needs mean-field runs on redwine with test lppd")]
    if runs:
        parts = [
            said(
                "in Repetition 1, there is only a 3 nats improvement in test lppd",
                _over_plain(evidence),
            ),
            said(
                "substantial improvements are observed in the earlier stages, often in the scale of "
                "hundreds",
                _early(runs),
            ),
        ]
    return conclude(
        11,
        "Full-batch BNN, mean-field: QuadCV is worth about 3 nats of test lppd on 100 points, the early "
        "stages hundreds.",
        "QuadCV: mean test lppd of the last tenth of the evaluations, QuadCV minus NoCV at L = 10, "
        "paired; "
        f"{LATE[0]:g} to {LATE[1]:g} nats asked for. Early ends where a run is within {RESPECTABLE:g} "
        "nats "
        f"of its own best ELBO; the gain from the start to there is above {EARLY:g}.",
        parts,
        evidence.stand_ins([NETWORK]),
    )


def _settings(evidence: Evidence, label: str) -> list[Setting]:
    return evidence.settings(label, models=[NETWORK], families=["mean-field"], draws=DRAWS)


def _over_plain(evidence: Evidence) -> Part:
    pairs, remark = evidence.ended((NETWORK, "mean-field", DRAWS[0]), "nocv", "quadcv")
    gains = [late_lppd(quad) - late_lppd(plain) for plain, quad in pairs]
    known = [gain for gain in gains if math.isfinite(gain)]
    if not known:
        return missing("lppd of QuadCV and NoCV: no repetition had reached a plateau")
    gain = mean(known)
    return gain.part(
        gain.within(*LATE),
        f"QuadCV's test lppd ends {gain.middle:+.2f} nats from NoCV's{remark}",
        f"QuadCV over NoCV: {gain.middle:+.2f} nats",
        "+.2f",
    )


def _early(runs: list[Record]) -> Part:
    found = [(run.cell.rep, _climb(run)) for run in runs if on_plateau(run)]
    known = [(rep, gain) for rep, gain in found if math.isfinite(gain)]
    if not known:
        return missing("gains in lppd: no run had reached a plateau; longer runs could tell")
    early = mean([float(np.median(gains)) for gains in by_rep(known).values()])
    return early.part(
        early.within(EARLY, math.inf),
        f"until the ELBO is within {RESPECTABLE:g} nats, test lppd changes by {early.middle:+.0f} nats",
        f"early {early.middle:+.0f} nats",
        "+.0f",
    )


def _climb(run: Record) -> float:
    """Gain in lppd until the ELBO is respectable."""
    elbo, lppd = settled(run.elbo), run.column("lppd")
    known = np.flatnonzero(np.isfinite(lppd))
    there = int(np.argmax(elbo >= np.max(elbo) - RESPECTABLE))
    after = known[known >= there]
    if len(known) < 3 or len(after) == 0:
        return math.nan
    return float(lppd[after[0]]) - float(lppd[known[0]])
