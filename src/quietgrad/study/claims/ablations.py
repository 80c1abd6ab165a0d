"""Claims 12 and 13: ZVCV-GD with second-order columns, and with more inner steps."""

import math

from ..plateau import late_elbo
from .claim import Claim, Part, Verdict, conclude, missing
from .evidence import POISSON, Evidence, Match, Setting, plateaus
from .interval import Interval, geometric, mean
from .measures import typical_ratio

BASE = "zvcv-gd"
ORDER_2, STEPS_20, CONVERGED = f"{BASE} order 2", f"{BASE} 20 steps", f"{BASE} to convergence"
SETTING: Setting = (POISSON, "mean-field", 10)
WHERE = "frisk, mean-field, L = 10"
# The ELBO "does not move" if it stays within so many nats.
STILL = 0.5


def matches(evidence: Evidence, label: str) -> list[Match]:
    """Runs of ZVCV-GD as in the paper, and of a variant, in the same repetitions."""
    both = evidence.match(SETTING, BASE, label, group="ablation")
    if both:
        return both
    variants = {run.cell.rep: run for (run,) in evidence.match(SETTING, label, group="ablation")}
    plain = {run.cell.rep: run for (run,) in evidence.match(SETTING, BASE)}
    return [(plain[rep], variants[rep]) for rep in sorted(plain.keys() & variants.keys())]


def second_order(evidence: Evidence) -> Claim:
    """Claim 12."""
    pairs = matches(evidence, ORDER_2)
    parts = [missing(f'needs "{ORDER_2}" beside "{BASE}" on {WHERE}')]
    if pairs:
        parts = [_noise(pairs), _change(pairs)]
    return conclude(
        12,
        "Second-order ZVCV-GD adds noise and hurts the ELBO (frisk, mean-field, L = 10).",
        "Noise: the median variance ratio of second order over each run is above 1. ELBO: mean of the "
        "last tenth of the evaluations, second minus first order, paired; below zero holds, and a "
        f"change that stays above -{STILL / 5:g} nats refutes it.",
        parts,
        evidence.stand_ins([POISSON]),
    )


def _noise(pairs: list[Match]) -> Part:
    ratios = [typical_ratio(second) for _, second in pairs]
    known = [ratio for ratio in ratios if ratio > 0]
    if not known:
        return missing("needs variance ratios of second order (variance_every)")
    ratio = geometric(known)
    return ratio.part(
        ratio.within(1.0, math.inf),
        f"the variance ratio of second order is {ratio.middle:.3g}",
        f"ratio {ratio.middle:.3g}",
        ".3g",
    )


def _change(pairs: list[Match]) -> Part:
    ended, remark = plateaus(pairs)
    if not ended:
        return missing("late ELBO: no repetition had reached a plateau; longer runs could tell")
    change = mean([late_elbo(second) - late_elbo(first) for first, second in ended])
    return change.part(
        _hurts(change),
        f"its late ELBO is {change.middle:+.2f} nats from that of first order{remark}",
        f"ELBO {change.middle:+.2f} nats",
        "+.2f",
    )


def _hurts(change: Interval) -> Verdict:
    if change.high < 0:
        return Verdict.HOLDS
    return Verdict.DOES_NOT if change.low > -STILL / 5 else Verdict.CANNOT_TELL


def inner_steps(evidence: Evidence) -> Claim:
    """Claim 13."""
    twenty, converged = matches(evidence, STEPS_20), matches(evidence, CONVERGED)
    return conclude(
        13,
        "20 inner steps reduce variance more than 4; running to convergence does not necessarily "
        "reduce it most; the ELBO does not move.",
        "Median variance ratio over each run, paired: 20 steps over 4 steps is below 1; convergence "
        "over 20 steps is not clearly below 1. ELBO: the mean of the last tenth of the evaluations "
        f"stays within {STILL:g} nats of that with 4 steps.",
        [_more_steps(twenty), _convergence(twenty, converged), *_unmoved(twenty, converged)],
        evidence.stand_ins([POISSON]),
    )


def _more_steps(twenty: list[Match]) -> Part:
    factors = _factors([(typical_ratio(four), typical_ratio(more)) for four, more in twenty])
    if not factors:
        return missing(f'needs "{STEPS_20}" beside "{BASE}" on {WHERE}')
    factor = geometric(factors)
    return factor.part(
        factor.within(0.0, 1.0),
        f"the ratio with 20 steps is {factor.middle:.3f} times that with 4",
        f"20 over 4: {factor.middle:.3f}",
        ".3f",
    )


def _convergence(twenty: list[Match], converged: list[Match]) -> Part:
    after = {run.cell.rep: typical_ratio(run) for _, run in converged}
    pairs = [(typical_ratio(run), after[run.cell.rep]) for _, run in twenty if run.cell.rep in after]
    factors = _factors(pairs)
    if not factors:
        return missing(f'needs "{CONVERGED}" beside "{STEPS_20}" on {WHERE}')
    factor = geometric(factors)
    unclear = Verdict.CANNOT_TELL if factor.middle < 1 or factor.reps < 2 else Verdict.HOLDS
    return factor.part(
        Verdict.DOES_NOT if factor.high < 1 else unclear,
        f"the ratio at convergence is {factor.middle:.3f} times that with 20 steps",
        f"converged over 20: {factor.middle:.3f}",
        ".3f",
    )


def _unmoved(twenty: list[Match], converged: list[Match]) -> list[Part]:
    parts = []
    for name, pairs in (("20 steps", twenty), ("convergence", converged)):
        ended, remark = plateaus(pairs)
        if pairs and not ended:
            parts.append(
                missing(
                    f"late ELBO with {name}: no repetition had reached a plateau; longer runs could tell"
                )
            )
        elif ended:
            change = mean([late_elbo(more) - late_elbo(four) for four, more in ended])
            parts.append(
                change.part(
                    change.within(-STILL, STILL),
                    f"with {name} the late ELBO is {change.middle:+.2f} nats from that with 4 "
                    f"steps{remark}",
                    f"ELBO, {name}: {change.middle:+.2f} nats",
                    "+.2f",
                )
            )
    return parts


def _factors(pairs: list[tuple[float, float]]) -> list[float]:
    return [after / before for before, after in pairs if before > 0 and after > 0]
