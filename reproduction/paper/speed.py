"""Claims 1 and 2: which estimator is first by the clock, and what more draws cost."""

import math
from collections.abc import Sequence

import numpy as np

from quietgrad.study.claim import Claim, Part, Verdict, conclude, missing, said
from quietgrad.study.clock import Clock, clock_of, seconds
from quietgrad.study.interval import Interval, geometric, mean, share
from quietgrad.study.records import Record

from .evidence import DRAWS, ESTIMATORS, RESPECTABLE, Evidence, Setting, by_rep
from .measures import step_ratios

# Arrivals are read off at evaluations, so times closer than this are a tie.
TIE = 1.05
# "Costs little": five times the draws for at most this multiple of the time.
LITTLE = 1.5
# A gap has not narrowed if its logarithm falls by less than this.
SAME = 0.05


def wall_clock(evidence: Evidence) -> Claim:
    """Claim 1."""
    settings = evidence.settings(*ESTIMATORS)
    parts = [missing("needs NoCV, ZVCV-GD and QuadCV on one task and family")]
    runs = (run for s in settings for match in evidence.match(s, *ESTIMATORS) for run in match)
    if any(clock_of(run) is Clock.NONE for run in runs):
        parts = [
            missing("cells ran side by side and have no clock; `quietgrad study time` gives them one")
        ]
    elif settings:
        parts = [
            said(
                "NoCV generally converges to a respectable ELBO more swiftly",
                _first(evidence, settings),
            ),
            said(
                "the performance gap between the estimators is even narrower when L=50",
                _gap(evidence, settings),
            ),
        ]
    return conclude(
        1,
        "By the clock, NoCV generally reaches a respectable ELBO first; the gap narrows at L = 50.",
        f"Seconds of optimisation until the ELBO is within {RESPECTABLE:g} nats of the best that the "
        "three estimators reach on the task and family. First: the share of settings (task, family, "
        f"L) in which NoCV is fastest or within {TIE - 1:.0%} of it; more than half is asked for. Gap: "
        "the factor between the times of NoCV and of the other two, median over settings. It narrows if "
        f"its logarithm falls, and does not if that falls by less than {SAME:g}.",
        parts,
        evidence.clock(settings),
        evidence.tested(settings),
        evidence.stand_ins(),
    )


def _first(evidence: Evidence, settings: Sequence[Setting]) -> Part:
    won = []
    for setting in settings:
        for plain, *others in evidence.match(setting, *ESTIMATORS):
            times = [evidence.respectable(run).seconds for run in (plain, *others)]
            known = [math.inf if time is None else time for time in times]
            if min(known) < math.inf:
                won.append((plain.cell.rep, float(known[0] <= TIE * min(known[1:]))))
    if not won:
        return missing("no run had reached a plateau to come near to; longer runs could tell")
    won_share = share([float(np.mean(values)) for values in by_rep(won).values()])
    count = int(sum(value for _, value in won))
    return won_share.part(
        won_share.within(0.5, 1.0),
        f"NoCV was first in {count} of {len(won)} races",
        f"first in {won_share.middle:.0%} of races",
        ".0%",
    )


def _gap(evidence: Evidence, settings: Sequence[Setting]) -> Part:
    few, many = DRAWS
    gaps: dict[int, list[tuple[int, float]]] = {few: [], many: []}
    for model, family, _ in (s for s in settings if s[2] == few):
        for draws in DRAWS:
            for plain, *others in evidence.match((model, family, draws), *ESTIMATORS):
                logs = [_log_factor(evidence, plain, other) for other in others]
                known = [abs(log) for log in logs if not math.isnan(log)]
                if known and (model, family, many) in settings:
                    gaps[draws].append((plain.cell.rep, float(np.mean(known))))
    at_few, at_many = by_rep(gaps[few]), by_rep(gaps[many])
    reps = [rep for rep in at_few if rep in at_many]
    if not reps:
        return missing(f"needs runs at L = {few} and L = {many} that come near the best")
    middles = [[float(np.median(at[rep])) for rep in reps] for at in (at_few, at_many)]
    change = mean([late - early for early, late in zip(*middles, strict=True)])
    wide, narrow = (math.exp(float(np.mean(values))) for values in middles)
    return change.part(
        _narrows(change),
        f"the times differ by a factor of {wide:.2f} at L = {few} and {narrow:.2f} at L = {many}",
        f"gap of {wide:.2f} at L = {few}, {narrow:.2f} at L = {many}",
        "+.2f",
        about="change of the log gap ",
    )


def _narrows(change: Interval) -> Verdict:
    if change.high < 0:
        return Verdict.HOLDS
    return Verdict.DOES_NOT if change.low > -SAME else Verdict.CANNOT_TELL


def _log_factor(evidence: Evidence, plain: Record, other: Record) -> float:
    """Log of other's time over plain's; a run that never arrives counts with its whole time."""
    times = []
    for run in (plain, other):
        arrival = evidence.respectable(run)
        times.append((arrival.seconds, float(np.max(seconds(arrival.record)))))
    if all(seconds is None for seconds, _ in times):
        return math.nan
    (mine, my_end), (its, its_end) = times
    mine, its = my_end if mine is None else mine, its_end if its is None else its
    return math.log(its / mine) if mine > 0 and its > 0 else math.nan


def draws_are_cheap(evidence: Evidence) -> Claim:
    """Claim 2."""
    few, many = DRAWS
    settings = [
        (model, family, few)
        for model, family, draws in evidence.settings("nocv")
        if draws == few and evidence.join((model, family, "nocv", few), (model, family, "nocv", many))
    ]
    cost, over, steps, spent = [], "repetitions", [], []
    for model, family, _ in settings:
        for label in ESTIMATORS:
            runs = [(model, family, label, draws) for draws in DRAWS]
            pairs = [(narrow, wide) for narrow, wide in evidence.join(*runs)]
            found, over = step_ratios(pairs) if pairs else ([], over)
            cost += found
            for narrow, wide in pairs:
                rep, before, after = narrow.cell.rep, *map(evidence.respectable, (narrow, wide))
                if before.steps and after.steps:
                    steps.append((rep, after.steps / before.steps))
                if before.seconds and after.seconds:
                    spent.append((rep, after.seconds / before.seconds))
    parts = [missing(f"needs NoCV at L = {few} and L = {many}")]
    if settings:
        parts = [
            said(
                "increasing L from 10 to 50 incurs negligible computational cost",
                _price(cost, over, accelerated=evidence.accelerated),
            ),
            said("but produce meaningfully faster convergence", _faster(steps, spent)),
        ]
    return conclude(
        2,
        "Going from 10 to 50 draws costs little and converges faster (on an A100).",
        f"Time of a step at L = {many} over L = {few}, geometric mean over tasks, families and the "
        f'paper\'s estimators; "little" is at most {LITTLE:g}. Faster: steps until the ELBO is within '
        f"{RESPECTABLE:g} nats of the best, at L = {many} over L = {few}.",
        parts,
        evidence.clock(settings),
        evidence.tested(settings),
        evidence.stand_ins(),
    )


def _price(cost: Sequence[tuple[int, float]], over: str, *, accelerated: bool) -> Part:
    few, many = DRAWS
    if not cost:
        return missing("seconds of a step: `quietgrad study time` measures them")
    price = geometric(_pooled(cost))
    verdict = price.within(0.0, LITTLE)
    # A sentence about a graphics card is not refuted by a processor.
    if verdict is Verdict.DOES_NOT and not accelerated:
        verdict = Verdict.ELSEWHERE
    return price.part(
        verdict,
        f"on this machine a step with {many} draws takes {price.middle:.2f} times as long as one with "
        f"{few} (the paper used an A100 graphics card)",
        f"{price.middle:.2f} times the time of a step",
        ".2f",
        over=over,
    )


def _faster(steps: Sequence[tuple[int, float]], spent: Sequence[tuple[int, float]]) -> Part:
    if not steps:
        return missing(
            f"needs runs at both numbers of draws that come within {RESPECTABLE:g} nats of the best"
        )
    fewer, told = geometric(_pooled(steps)), ""
    if spent:
        told = f"{geometric(_pooled(spent)).middle:.2f} times the seconds"
    return fewer.part(
        fewer.within(0.0, 1.0),
        f"it needs {fewer.middle:.2f} times the steps" + (f" and {told}" if told else ""),
        f"{fewer.middle:.2f} times the steps" + (f", {told}" if told else ""),
        ".2f",
        about="steps ",
    )


def _pooled(values: Sequence[tuple[int, float]]) -> list[float]:
    return [float(np.exp(np.mean(np.log(one)))) for one in by_rep(values).values()]
