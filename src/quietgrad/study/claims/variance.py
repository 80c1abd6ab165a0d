"""Claims 6, 7 and 8: how far the variance of the gradient falls, and where."""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..summary import NOISE, late_variance_ratio
from .claim import Claim, Part, Verdict, conclude, missing
from .evidence import DRAWS, FAMILIES, GAUSSIANS, LOGISTIC, NETWORKS, POISSON, Evidence, Setting, by_rep
from .interval import Interval, geometric, mean, share
from .measures import first_variance, typical_ratio

# Five times the draws, a fifth of the variance; a quarter either way covers the 100 gradients
# from which each variance is estimated.
FIFTH = (0.16, 0.25)
# A ratio above this is "no reduction".
NO_REDUCTION = 0.9


def quadcv_is_quieter(evidence: Evidence) -> Claim:
    """Claim 6."""
    settings = evidence.settings("zvcv-gd", "quadcv")
    factors: dict[str, list[tuple[int, float]]] = {"gaussian": [], "flow": []}
    for setting in settings:
        kind = "gaussian" if setting[1] in GAUSSIANS else "flow"
        for zv, quad in evidence.ended(setting, "zvcv-gd", "quadcv")[0]:
            log = _log(late_variance_ratio(quad)) - _log(late_variance_ratio(zv))
            if math.isfinite(log):
                factors[kind].append((quad.cell.rep, log))
    every = factors["gaussian"] + factors["flow"]
    parts = [missing("needs variance ratios of ZVCV-GD and QuadCV in runs that reached a plateau")]
    if every:
        below = share(_pooled((rep, float(log < 0)) for rep, log in every))
        factor = _geometric(every)
        parts = [
            below.part(
                below.within(0.5, 1.0),
                f"QuadCV's ratio is the lower one in {below.middle:.0%} of the runs, and "
                f"{factor.middle:.2g} times ZVCV-GD's in the geometric mean",
                f"lower in {below.middle:.0%} of runs",
                ".0%",
            ),
            _gaussian_most(factors),
        ]
    return conclude(
        6,
        "QuadCV's variance ratio is below ZVCV-GD's, most of all for Gaussian families.",
        "Median variance ratio over the last third of each run, QuadCV over ZVCV-GD, paired, in the "
        "repetitions that reached a plateau. Below: in more than half of the runs. Most of all: the "
        "factor is smaller for mean-field and low-rank than for Real NVP.",
        parts,
        evidence.tested(settings),
        evidence.stand_ins(),
    )


def _gaussian_most(factors: dict[str, list[tuple[int, float]]]) -> Part:
    gaussian, flow = (by_rep(factors[kind]) for kind in ("gaussian", "flow"))
    reps = [rep for rep in gaussian if rep in flow]
    if not reps:
        return missing("needs variance ratios for a Gaussian family and for Real NVP")
    logs = [float(np.mean(gaussian[rep]) - np.mean(flow[rep])) for rep in reps]
    factor = geometric([math.exp(log) for log in logs])
    here, there = (_geometric(factors[kind]).middle for kind in ("gaussian", "flow"))
    return factor.part(
        factor.within(0.0, 1.0),
        f"QuadCV over ZVCV-GD is {here:.2g} for Gaussian families and {there:.2g} for Real NVP",
        f"factor {here:.2g} Gaussian, {there:.2g} Real NVP",
        ".2g",
        about="first over second ",
    )


def zvcv_likes_many_draws(evidence: Evidence) -> Claim:
    """Claim 7."""
    small = evidence.settings("zvcv-gd", models=(LOGISTIC, POISSON))
    return conclude(
        7,
        "ZVCV-GD reduces variance more with larger L and smaller dim z; not on BNNs.",
        "Median variance ratio of ZVCV-GD over each run. Larger L: the ratio at L = 50 over that at L "
        "= 10, paired, on all tasks but the BNNs; below 1 is asked for. Smaller dim z: slope of the "
        "log ratio in log dim z over all tasks; above 0 is asked for. BNNs: the ratio is above "
        f"{NO_REDUCTION:g}.",
        [_more_draws(evidence, small), _smaller_dim(evidence), _networks(evidence)],
        evidence.stand_ins(),
    )


def _more_draws(evidence: Evidence, settings: Sequence[Setting]) -> Part:
    logs = []
    for model, family, draws in settings:
        if draws == DRAWS[0]:
            runs = [(model, family, "zvcv-gd", each) for each in DRAWS]
            for few, many in evidence.join(*runs):
                logs.append((few.cell.rep, _log(typical_ratio(many)) - _log(typical_ratio(few))))
    logs = [(rep, log) for rep, log in logs if math.isfinite(log)]
    if not logs:
        return missing("needs ZVCV-GD at L = 10 and L = 50 on a1a or frisk")
    factor = _geometric(logs)
    return factor.part(
        factor.within(0.0, 1.0),
        f"its ratio at L = 50 is {factor.middle:.4f} times that at L = 10",
        f"L = 50 over L = 10: {factor.middle:.4f}",
        ".4f",
    )


def _smaller_dim(evidence: Evidence) -> Part:
    points: dict[int, list[tuple[float, float]]] = {}
    for setting in evidence.settings("zvcv-gd"):
        for (run,) in evidence.match(setting, "zvcv-gd"):
            dim, log = run.outcome.get("dim"), _log(typical_ratio(run))
            if dim and math.isfinite(log):
                points.setdefault(run.cell.rep, []).append((math.log(dim), log))
    clouds = [np.array(cloud) for cloud in points.values() if len({dim for dim, _ in cloud}) > 1]
    if not clouds:
        return missing("needs ZVCV-GD on tasks of different dimensions")
    slope = mean([float(np.polyfit(cloud[:, 0], cloud[:, 1], 1)[0]) for cloud in clouds])
    return slope.part(
        slope.within(0.0, math.inf),
        f"ten times the dimensions multiply the ratio by {10**slope.middle:.2f}",
        f"slope in dim z {slope.middle:+.3f}",
        "+.3f",
    )


def _networks(evidence: Evidence) -> Part:
    ratios = [
        (run.cell.rep, _log(typical_ratio(run)))
        for setting in evidence.settings("zvcv-gd", models=NETWORKS)
        for (run,) in evidence.match(setting, "zvcv-gd")
    ]
    known = [(rep, log) for rep, log in ratios if math.isfinite(log)]
    if not known:
        return missing("needs variance ratios of ZVCV-GD on a BNN")
    ratio = _geometric(known)
    return ratio.part(
        ratio.within(NO_REDUCTION, math.inf),
        f"on BNNs its ratio is {ratio.middle:.3f}",
        f"ratio on BNNs {ratio.middle:.3f}",
        ".3f",
    )


def fifth_at_once(evidence: Evidence) -> Claim:
    """Claim 8."""
    parts, first = [], set()
    # A study may have cells with more gradients for this; heavy tails want them.
    group = NOISE if evidence.has_group(NOISE) else "main"
    for batches in (False, True):
        logs = []
        for model, family in itertools.product(evidence.models(), FAMILIES):
            runs = [(model, family, "nocv", draws) for draws in DRAWS]
            for few, many in evidence.join(*runs, group=group):
                (step, before), (_, after) = first_variance(few), first_variance(many)
                log = _log(after) - _log(before)
                if math.isfinite(log) and (few.cell.batch_size is not None) == batches:
                    logs.append((few.cell.rep, log))
                    first.add(step)
        if logs:
            # Not the mean: the Poisson model's gradients have hardly a variance at the start.
            middles = [math.exp(float(np.median(each))) for each in by_rep(logs).values()]
            parts.append(_fifth("mini-batch" if batches else "full-batch", geometric(middles)))
    return conclude(
        8,
        "Going from L = 10 to L = 50 equals a variance ratio of 0.2 from the first step.",
        "Gradient variance of NoCV where it is first evaluated in a run (in cells of the group "
        f'"{NOISE}" where there are any), L = 50 over L = 10, paired; the median over tasks '
        f"and families, {FIFTH[0]:g} to {FIFTH[1]:g} asked for.",
        parts or [missing("needs gradient variances of NoCV at L = 10 and L = 50")],
        f"first evaluated at step {', '.join(map(str, sorted(first)))}" if first else "",
        evidence.stand_ins(),
    )


def _fifth(kind: str, ratio: Interval) -> Part:
    verdict = ratio.within(*FIFTH)
    found = {
        Verdict.HOLDS: "a fifth",
        Verdict.DOES_NOT: "not a fifth",
        Verdict.CANNOT_TELL: "perhaps a fifth",
    }[verdict]
    rows = kind == "mini-batch" and verdict is not Verdict.HOLDS
    because = " (the noise of the rows in a batch does not shrink with more draws)" if rows else ""
    return ratio.part(
        verdict,
        f"{kind} tasks: {ratio.middle:.3f}, {found}{because}",
        f"{kind} {ratio.middle:.3f}",
        ".3f",
    )


def _log(value: float) -> float:
    return math.log(value) if value > 0 and math.isfinite(value) else math.nan


def _pooled(values: Iterable[tuple[int, float]]) -> list[float]:
    return [float(np.mean(one)) for one in by_rep(values).values()]


def _geometric(logs: Iterable[tuple[int, float]]) -> Interval:
    return geometric([math.exp(value) for value in _pooled(logs)])
