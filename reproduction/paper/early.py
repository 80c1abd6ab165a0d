"""Claim 5: QuadCV has to learn its quadratic before it helps."""

import math

import numpy as np

from quietgrad.study.claim import Claim, Part, Verdict, conclude, missing, said
from quietgrad.study.interval import geometric, mean
from quietgrad.study.records import Record
from quietgrad.study.summary import late_variance_ratio

from .evidence import GAUSSIANS, LOGISTIC, MODELS, POISSON, RESPECTABLE, Evidence, Model, Setting, by_rep
from .measures import step_of_ratio

PLACES: tuple[Setting, ...] = ((LOGISTIC, "mean-field", 10), (POISSON, "real-nvp", 10))
HALF = 0.5


def slow_start(evidence: Evidence) -> Claim:
    """Claim 5."""
    parts = [
        said(
            "QuadCVs may perform poorly in the early stages of gradient descent (e.g. logistic "
            "regression "
            "on mean-field Gaussian and hierarchical Poisson on real NVP)",
            _early(evidence, setting),
        )
        for setting in PLACES
    ]
    parts += [
        said(
            "This typically occurs as the optimisation process nears convergence",
            _late_fall(evidence, model),
        )
        for model in MODELS
    ]
    return conclude(
        5,
        "QuadCV is poor early (a1a mean-field; frisk Real NVP) because its quadratic must be learned "
        "first; its variance ratio falls only near convergence.",
        "Early: from the start until NoCV is within "
        f"{RESPECTABLE:g} nats of the best (the first third of the run if it never is), the median over "
        "evaluations of the ELBO of QuadCV minus that of NoCV at the same step, paired; below zero is "
        f"asked for. Fall: the first step with a variance ratio below {HALF:g}, over the step at which "
        "QuadCV comes that near to the best, Gaussian families, each model by itself; more than half is "
        "asked for.",
        parts,
        evidence.stand_ins([LOGISTIC, POISSON]),
    )


def _early(evidence: Evidence, setting: Setting) -> Part:
    model, family, draws = setting
    task = evidence.task(model)
    gaps = [
        _early_gap(evidence, plain, quad) for plain, quad in evidence.match(setting, "nocv", "quadcv")
    ]
    known = [gap for gap in gaps if not math.isnan(gap)]
    if not known:
        return missing(f"needs NoCV and QuadCV on {model[0]}, {family}, L = {draws}")
    gap = mean(known)
    verdict = gap.within(-math.inf, 0.0)
    # It "may": a case shows it. That a case which the paper names is none here refutes that case.
    return gap.part(
        Verdict.SHOWN if verdict is Verdict.HOLDS else verdict,
        f"early on {task}, {family}, QuadCV is {gap.middle:+.3g} nats from NoCV",
        f"{task}: {gap.middle:+.3g} nats",
        "+.3g",
    )


def _early_gap(evidence: Evidence, plain: Record, quad: Record) -> float:
    steps, where, other = np.intersect1d(plain.column("step"), quad.column("step"), return_indices=True)
    if len(steps) == 0:
        return math.nan
    end = evidence.respectable(plain).steps
    # At the same draws, so that their error cancels.
    gap = quad.column("elbo")[other] - plain.column("elbo")[where]
    early = (steps > 0) & (steps <= (steps[-1] / 3 if end is None else end)) & np.isfinite(gap)
    return float(np.median(gap[early])) if np.any(early) else math.nan


def _late_fall(evidence: Evidence, model: Model) -> Part:
    shares, flat, late = [], 0, []
    for setting in evidence.settings("quadcv", models=[model], families=GAUSSIANS):
        for (quad,) in evidence.match(setting, "quadcv"):
            late.append(late_variance_ratio(quad))
            step, there = step_of_ratio(quad, HALF), evidence.respectable(quad).steps
            if math.isinf(step):
                flat += 1
            elif there and not math.isnan(step):
                shares.append((quad.cell.rep, max(step, 1.0) / there))
    if not shares:
        task = evidence.task(model) or model[0]
        reason = f"on {task} no QuadCV run had a variance ratio below {HALF:g} and came near the best"
        return missing(reason if late else f"needs QuadCV runs with a Gaussian family on {task}")
    logs = by_rep((rep, math.log(value)) for rep, value in shares)
    share = geometric([math.exp(float(np.median(values))) for values in logs.values()])
    never = f"; in {flat} of {len(late)} runs it does not fall that far" if flat else ""
    return share.part(
        share.within(HALF, math.inf),
        f"on {evidence.task(model)} the variance ratio falls below {HALF:g} after {share.middle:.0%} "
        "of the steps that it takes "
        f"to come within {RESPECTABLE:g} nats of the best{never}",
        f"{evidence.task(model)}: fall at {share.middle:.0%} of the way",
        ".0%",
    )
