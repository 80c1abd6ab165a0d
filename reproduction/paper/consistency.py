"""Claims 9 and 10: does the picture depend on the Gaussian family, or on how runs are averaged?"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from quietgrad.study.claim import Claim, Part, Verdict, conclude, missing, said
from quietgrad.study.interval import Interval, geometric, mean
from quietgrad.study.plateau import late_elbo
from quietgrad.study.records import Record
from quietgrad.study.summary import late_variance_ratio, settled

from .evidence import DRAWS, ESTIMATORS, Evidence, Match, Setting, plateaus
from .measures import step_ratios

# What is compared, first label, second label, and how: a difference for each repetition (or round).
Contrast = tuple[str, str, str, Callable[[Sequence[Match]], list[float]]]


def _gains(pairs: Sequence[Match]) -> list[float]:
    return [late_elbo(second) - late_elbo(first) for first, second in plateaus(pairs)[0]]


def _log_times(pairs: Sequence[Match]) -> list[float]:
    return [math.log(ratio) for _, ratio in step_ratios([(first, second) for first, second in pairs])[0]]


def _log_factors(pairs: Sequence[Match]) -> list[float]:
    ratios = [tuple(map(late_variance_ratio, pair)) for pair in plateaus(pairs)[0]]
    return [math.log(second / first) for first, second in ratios if first > 0 and second > 0]


CONTRASTS: tuple[Contrast, ...] = (
    ("late ELBO", "nocv", "quadcv", _gains),
    ("late ELBO", "nocv", "zvcv-gd", _gains),
    ("step time", "nocv", "quadcv", _log_times),
    ("variance ratio", "zvcv-gd", "quadcv", _log_factors),
)
LEAST = 4
# Of two numbers, median and mean are the same.
LEAST_REPS = 3
# The share of comparisons that must agree for "the same": one rule for claims 9 and 10.
SAME = 0.75
# A gain that is at most this multiple of the mean-field one is like it ("about", as in claim 3).
ALIKE = 2.0


def rank_five(evidence: Evidence) -> Claim:
    """Claim 9."""
    agree, differ = [], []
    for model, _, draws in evidence.settings("nocv", families=["mean-field"]):
        for what, first, second, measure in CONTRASTS:
            sides = [
                _contrast(evidence.match((model, family, draws), first, second), measure)
                for family in ("mean-field", "low-rank")
            ]
            signs = [_sign(side) for side in sides if side is not None]
            if len(signs) == 2 and all(signs):
                name = f"{what} of {second} against {first} on {evidence.task(model)}, L = {draws}"
                (agree if signs[0] == signs[1] else differ).append(name)
    total = len(agree) + len(differ)
    if total < LEAST:
        parts = [
            missing(
                f"{total} comparisons are clear for both mean-field and low-rank, {LEAST} are needed "
                "(more repetitions or longer runs make them clear)"
            )
        ]
    else:
        share = len(agree) / total
        verdict = Verdict.HOLDS if share >= SAME else Verdict.DOES_NOT
        other = f"; not the same: {', '.join(differ)}" if differ else ""
        parts = [
            Part(
                verdict if share >= SAME or share <= 0.5 else Verdict.CANNOT_TELL,
                f"{len(agree)} of {total} clear comparisons go the same way{other}",
                f"{len(agree)} of {total} alike",
                "each comparison is clear at 90% for both families",
            )
        ]
    parts = [
        said("are similar to those obtained from", parts[0]),
        said("We observe marginal gain in ELBO", _gains_alike(evidence)),
    ]
    return conclude(
        9,
        "Rank-5 Gaussian: the same picture as for mean-field.",
        "For each task and L: late ELBO of QuadCV and of ZVCV-GD against NoCV, step time of QuadCV "
        "against NoCV, late variance ratio of QuadCV against ZVCV-GD. Of those whose sign is clear "
        f"(90% interval over paired repetitions) for both families, at least {SAME:.0%} must agree; "
        "half or less refutes it. Marginal: the gain of QuadCV over NoCV at L = 10, over that with a "
        f"mean-field Gaussian, geometric mean over models; at most {ALIKE:g} is asked for. What is late "
        "comes from repetitions that reached a plateau.",
        parts,
        evidence.stand_ins(),
    )


def _gains_alike(evidence: Evidence) -> Part:
    """QuadCV's gain at rank 5 over its gain with a mean-field Gaussian, by repetition."""
    logs: dict[int, list[float]] = {}
    for model in evidence.models():
        sides = []
        for family in ("mean-field", "low-rank"):
            pairs = evidence.ended((model, family, DRAWS[0]), "nocv", "quadcv")[0]
            sides.append({a.cell.rep: late_elbo(b) - late_elbo(a) for a, b in pairs})
        for rep in sides[0].keys() & sides[1].keys():
            if sides[0][rep] > 0 and sides[1][rep] > 0:
                logs.setdefault(rep, []).append(math.log(sides[1][rep] / sides[0][rep]))
    if not logs:
        return missing("needs NoCV and QuadCV at L = 10 for mean-field and low-rank on a plateau")
    factor = geometric([math.exp(float(np.mean(values))) for values in logs.values()])
    return factor.part(
        factor.within(0.0, ALIKE),
        f"QuadCV's gain in ELBO is {factor.middle:.2g} times that with a mean-field Gaussian",
        f"gain {factor.middle:.2g} times that of mean-field",
        ".2g",
    )


def _contrast(
    pairs: Sequence[Match], measure: Callable[[Sequence[Match]], list[float]]
) -> Interval | None:
    known = [value for value in measure(pairs) if math.isfinite(value)]
    return mean(known) if known else None


def _sign(interval: Interval) -> int:
    return (interval.low > 0) - (interval.high < 0)


def medians_and_means(evidence: Evidence) -> Claim:
    """Claim 10."""
    settings = evidence.settings(*ESTIMATORS, draws=DRAWS)
    grids = [_grid(evidence, setting) for setting in settings]
    grids = [grid for grid in grids if grid is not None and grid.shape[1] >= LEAST_REPS]
    if not grids:
        parts = [missing("needs three or more repetitions of the paper's estimators")]
    else:
        parts = [
            said(
                "the findings of this study are substantiated by interpreting either the mean or "
                "median of "
                "the evaluation statistics",
                _agreement(grids),
            ),
            said("trajectories vary substantially with different initialisations", _spread(grids)),
        ]
    return conclude(
        10,
        "Medians and means tell the same story; initialisation moves trajectories a lot.",
        "Settled ELBO (median of three evaluations) at a quarter, half, three quarters and the end of "
        "each run. Same story: medians and means over repetitions put two estimators in the same order "
        f"in at least {SAME:.0%} of the comparisons in which they are more than half a nat apart by "
        "either; half or less refutes it. "
        "Initialisation: at a quarter of the run, the range over repetitions is "
        "larger than the range over the estimators' medians, in more than half of the settings.",
        parts,
        evidence.tested(settings),
        evidence.stand_ins(),
    )


def _grid(evidence: Evidence, setting: Setting) -> np.ndarray | None:
    """Settled ELBO by estimator, repetition and quarter of the run."""
    matches = evidence.match(setting, *ESTIMATORS)
    values = [[_quarters(run) for run in match] for match in matches]
    grid = np.array(values, float).swapaxes(0, 1)
    return grid if np.all(np.isfinite(grid)) else None


def _quarters(record: Record) -> list[float]:
    elbo = settled(record.elbo)
    if len(elbo) < 4:
        return [math.nan] * 4
    return [float(elbo[round((len(elbo) - 1) * quarter / 4)]) for quarter in range(1, 5)]


def _agreement(grids: Sequence[np.ndarray]) -> Part:
    """In how many comparisons medians and means agree, on the way and late together."""
    same, total = np.zeros(2, int), np.zeros(2, int)
    for grid in grids:
        medians, means = np.median(grid, axis=1), np.mean(grid, axis=1)
        for first in range(len(grid)):
            for second in range(first):
                by_median, by_mean = (m[first] - m[second] for m in (medians, means))
                clear = np.maximum(abs(by_median), abs(by_mean)) > 0.5
                agree = clear & (np.sign(by_median) == np.sign(by_mean))
                same += [int(np.sum(agree[:2])), int(np.sum(agree[2:]))]
                total += [int(np.sum(clear[:2])), int(np.sum(clear[2:]))]
    if not total.sum():
        return Part(Verdict.HOLDS, "no two estimators are half a nat apart by either", "no gaps")
    share = float(same.sum() / total.sum())
    verdict = Verdict.HOLDS if share >= SAME else Verdict.CANNOT_TELL
    return Part(
        Verdict.DOES_NOT if share <= 0.5 else verdict,
        f"medians and means agree in {same.sum()} of {total.sum()} comparisons: {same[0]} of "
        f"{total[0]} in "
        "the first half of the runs, where one repetition that is far below moves the mean, and "
        f"{same[1]} "
        f"of {total[1]} in the second",
        f"order alike in {share:.0%}",
        f"{same.sum()} of {total.sum()}; first half {same[0]} of {total[0]}, second {same[1]} of "
        f"{total[1]}",
    )


def _spread(grids: Sequence[np.ndarray]) -> Part:
    factors = []
    for grid in grids:
        early = grid[:, :, 0]
        over_reps = float(np.median(np.ptp(early, axis=1)))
        over_estimators = float(np.ptp(np.median(early, axis=1)))
        factors.append(over_reps / max(over_estimators, 1e-9))
    larger, middle = sum(factor > 1 for factor in factors), float(np.median(factors))
    times = f"{middle:,.0f}" if middle >= 10 else f"{middle:.2g}"
    return Part(
        Verdict.HOLDS if larger > len(factors) / 2 else Verdict.DOES_NOT,
        f"early on, repetitions differ more than estimators in {larger} of {len(factors)} settings "
        f"(median factor {times})",
        f"spread over repetitions {times} times that over estimators",
        f"{larger} of {len(factors)}",
    )
