"""Claims 9 and 10: does the picture depend on the Gaussian family, or on how runs are averaged?"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..plateau import late_elbo
from ..records import Record
from ..summary import late_variance_ratio, settled
from .claim import Claim, Part, Verdict, conclude, missing
from .evidence import DRAWS, ESTIMATORS, Evidence, Match, Setting, plateaus
from .interval import Interval, mean
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
SAME = 0.75
ALIKE = 0.9


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
    return conclude(
        9,
        "Rank-5 Gaussian: the same picture as for mean-field.",
        "For each task and L: late ELBO of QuadCV and of ZVCV-GD against NoCV, step time of QuadCV "
        "against NoCV, late variance ratio of QuadCV against ZVCV-GD. Of those whose sign is clear "
        f"(90% interval over paired repetitions) for both families, at least {SAME:.0%} must agree; "
        "half or less refutes it. What is late comes from repetitions that reached a plateau.",
        parts,
        evidence.stand_ins(),
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
        parts = [*_same_order(grids), _spread(grids)]
    return conclude(
        10,
        "Medians and means tell the same story; initialisation moves trajectories a lot.",
        "Settled ELBO (median of three evaluations) at a quarter, half, three quarters and the end of "
        "each run. Same story: medians and means over repetitions put two estimators in the same order "
        f"in at least {ALIKE:.0%} of the comparisons in which they are more than half a nat apart by "
        "either, on the way (a quarter and half) and late (three quarters and the end). "
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


def _same_order(grids: Sequence[np.ndarray]) -> list[Part]:
    """On the way, where one repetition may still be far below, and late."""
    return [
        _agreement([grid[:, :, quarters] for grid in grids], when)
        for when, quarters in (("on the way", slice(0, 2)), ("late", slice(2, 4)))
    ]


def _agreement(grids: Sequence[np.ndarray], when: str) -> Part:
    same = total = 0
    for grid in grids:
        medians, means = np.median(grid, axis=1), np.mean(grid, axis=1)
        for first in range(len(grid)):
            for second in range(first):
                by_median, by_mean = (m[first] - m[second] for m in (medians, means))
                clear = np.maximum(abs(by_median), abs(by_mean)) > 0.5
                same += int(np.sum(clear & (np.sign(by_median) == np.sign(by_mean))))
                total += int(np.sum(clear))
    if total == 0:
        return Part(
            Verdict.HOLDS, f"{when}, no two estimators are half a nat apart by either", "no gaps"
        )
    share = same / total
    alike = share >= ALIKE
    why = "" if alike else " (one repetition that is still far below the others moves the mean)"
    return Part(
        Verdict.HOLDS if alike else Verdict.DOES_NOT,
        f"{when}, medians and means agree in {same} of {total} comparisons{why}",
        f"order alike {when} in {share:.0%}",
        f"{same} of {total}",
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
