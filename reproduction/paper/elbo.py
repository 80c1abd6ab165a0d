"""Claims 3 and 4: what QuadCV and ZVCV-GD do to the ELBO at the end."""

import numpy as np

from quietgrad.study.claim import Claim, Part, Verdict, conclude, missing, said
from quietgrad.study.interval import geometric, mean
from quietgrad.study.plateau import NATS, late_elbo

from .evidence import NETWORK, NETWORKS, POISSON, Evidence, Match, Model, Setting, by_rep
from .measures import step_ratios

# Nats that QuadCV gains in the paper; half to twice that counts as "about".
LIFTS: tuple[tuple[Model, float], ...] = ((POISSON, 0.7), (NETWORK, 6.0))
# "50% to 100% more run time", with a quarter of a NoCV step on either side.
COST = (1.25, 2.25)
PLATEAU = (
    "Only repetitions count whose runs have all reached a plateau: the last tenth of the evaluations "
    f"is less than {NATS:g} nats, or two standard errors, above the tenth before."
)


def quadcv_lifts(evidence: Evidence) -> Claim:
    """Claim 3."""
    settings: list[Setting] = [(model, "mean-field", 10) for model, _ in LIFTS]
    parts = []
    for setting, (model, nats) in zip(settings, LIFTS, strict=True):
        pairs = evidence.match(setting, "nocv", "quadcv")
        if not pairs:
            parts.append(missing(f"needs NoCV and QuadCV on {model[0]}, mean-field, L = 10"))
            continue
        parts += [
            said(
                "QuadCV can improve ELBO by approximately 0.7 nats and 6 nats in hierarchical Poisson "
                "and "
                "full-batch BNN when using a mean-field Gaussian",
                _lift(evidence, setting, nats),
            ),
            said(
                "a cost of roughly 50% to 100% more runtime compared to NoCV",
                _cost(str(evidence.task(model)), pairs),
            ),
        ]
    return conclude(
        3,
        "Mean-field, L = 10: QuadCV lifts the best ELBO by about 0.7 nats (frisk) and 6 nats "
        "(full-batch BNN), for 50% to 100% more run time than NoCV.",
        "Mean ELBO of the last tenth of the evaluations, QuadCV minus NoCV, paired; half to twice the "
        f"paper's figure counts as about. {PLATEAU} Run time: seconds of a step, QuadCV over NoCV, "
        f"{COST[0]:g} to {COST[1]:g} asked for.",
        parts,
        evidence.clock(settings),
        evidence.stand_ins([model for model, _ in LIFTS]),
    )


def _lift(evidence: Evidence, setting: Setting, nats: float) -> Part:
    task = evidence.task(setting[0])
    pairs, remark = evidence.ended(setting, "nocv", "quadcv")
    if not pairs:
        return missing(f"on {task}, no repetition had reached a plateau; longer runs could tell")
    lift = mean([late_elbo(quad) - late_elbo(plain) for plain, quad in pairs])
    return lift.part(
        lift.within(nats / 2, nats * 2),
        f"on {task}, QuadCV ends {lift.middle:+.2f} nats from NoCV{remark}, the paper has {nats:+g}",
        f"{task}: {lift.middle:+.2f} nats",
        "+.2f",
    )


def _cost(task: str, pairs: list[Match]) -> Part:
    found, over = step_ratios([(plain, quad) for plain, quad in pairs])
    if not found:
        return missing(f"seconds of a step on {task}: `quietgrad study time` measures them")
    cost = geometric([ratio for _, ratio in found])
    return cost.part(
        cost.within(*COST),
        f"on {task}, a QuadCV step takes {cost.middle:.2f} times as long as a NoCV step",
        f"{task}: {cost.middle:.2f} times the time",
        ".2f",
        over=over,
    )


def zvcv_is_marginal(evidence: Evidence) -> Claim:
    """Claim 4."""
    parts = [
        said("ZVCV-GD provides only marginal improvement", _marginal(evidence)),
        said(
            "and can even converge to a suboptimal maximum in some cases (e.g. logistic regression, "
            "real NVP 2, and L = 10)",
            _worse_optimum(evidence),
        ),
    ]
    parts += [
        said(
            "The trajectories of ZVCV-GD and NoCV are nearly identical in both full-batch and "
            "mini-batch "
            "BNN when L=10",
            _indistinguishable(evidence, model),
        )
        for model in NETWORKS
    ]
    return conclude(
        4,
        "ZVCV-GD helps marginally; it can end in a worse optimum; on both BNNs at L = 10 it cannot be "
        "told "
        "from NoCV.",
        "Mean ELBO of the last tenth of the evaluations, ZVCV-GD minus NoCV, paired. "
        f"{PLATEAU} Marginal: the median over settings is between -1 and +1 nats. Worse optimum: it "
        "can, so one "
        "repetition of any setting that ends more than 1 nat lower shows it, and none refutes nothing. "
        "Not to be told apart: the mean-field difference is "
        "within 1 nat, or 0.5% of the ELBO if that is more.",
        parts,
        evidence.stand_ins(),
    )


def _marginal(evidence: Evidence) -> Part:
    gains = []
    settings = evidence.settings("nocv", "zvcv-gd")
    for setting in settings:
        pairs, _ = evidence.ended(setting, "nocv", "zvcv-gd")
        gains += [(zv.cell.rep, late_elbo(zv) - late_elbo(plain)) for plain, zv in pairs]
    if not gains:
        reason = (
            "no run had reached a plateau; longer runs could tell"
            if settings
            else "needs NoCV and ZVCV-GD runs"
        )
        return missing(f"overall gain, {reason}")
    gain = mean([float(np.median(values)) for values in by_rep(gains).values()])
    return gain.part(
        gain.within(-1.0, 1.0),
        f"over all settings the median gain of ZVCV-GD is {gain.middle:+.2f} nats",
        f"median gain {gain.middle:+.2f} nats",
        "+.2f",
    )


def _worse_optimum(evidence: Evidence) -> Part:
    """In any setting: the paper's own example is one of several runs."""
    found: list[tuple[float, str]] = []
    for setting in evidence.settings("nocv", "zvcv-gd"):
        for plain, zv in evidence.ended(setting, "nocv", "zvcv-gd")[0]:
            place = f"{evidence.task(setting[0])}, {setting[1]}, L = {setting[2]}"
            found.append((late_elbo(zv) - late_elbo(plain), place))
    if not found:
        return missing("worse optima: no repetition had reached a plateau; longer runs could tell")
    worst, where = min(found)
    worse = sum(gain < -1.0 for gain, _ in found)
    return Part(
        Verdict.SHOWN if worse else Verdict.CANNOT_TELL,
        f"{worse} of {len(found)} runs end more than 1 nat below NoCV, the lowest one {worst:+.1f} nats "
        f"({where})",
        f"{worse} of {len(found)} runs end lower",
        f"by up to {-worst:.1f} nats: {where}" if worse else "",
    )


def _indistinguishable(evidence: Evidence, model: Model) -> Part:
    setting: Setting = (model, "mean-field", 10)
    if not evidence.match(setting, "nocv", "zvcv-gd"):
        return missing(f"needs NoCV and ZVCV-GD on {model[0]}, mean-field, L = 10")
    task = evidence.task(model)
    pairs, remark = evidence.ended(setting, "nocv", "zvcv-gd")
    if not pairs:
        return missing(f"on {task}, no repetition had reached a plateau; longer runs could tell")
    gain = mean([late_elbo(zv) - late_elbo(plain) for plain, zv in pairs])
    margin = max(1.0, 0.005 * abs(float(np.median([late_elbo(plain) for plain, _ in pairs]))))
    return gain.part(
        gain.within(-margin, margin),
        f"on {task}, ZVCV-GD ends {gain.middle:+.2f} nats from NoCV{remark}, within {margin:.1f} is "
        "asked for",
        f"{task}: {gain.middle:+.2f} nats",
        "+.2f",
    )
