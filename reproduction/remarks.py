"""Remarks beside the figures and tables of the published study, with their numbers from the cells.

Each writes its text with numbers and says whether the words around them are true, as in `conclusion.py`.
"""

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
from conclusion import DRAWS, Sentence, listed, signed
from results import (
    FAMILIES,
    PLACES,
    TASKS,
    Key,
    Results,
    broken,
    clearly,
    falling,
    late_lppd,
    paper,
    step_ratio,
)

from quietgrad.evaluation.arrival import held_index
from quietgrad.report.names import label_name
from quietgrad.study.claim import Verdict
from quietgrad.study.plateau import late_elbo
from quietgrad.study.summary import late_variance_ratio

RQMC: Key = ("main", "rqmc", 10)


def costs(results: Results) -> Sentence:
    """What steps cost over those of NoCV with ten draws, by family."""
    quad = {family: _costs(results, paper("quadcv", 10), family) for family in FAMILIES}
    fifty = _costs(results, paper("nocv", 50), *FAMILIES)
    quiet = {family: _costs(results, None, family) for family in FAMILIES}
    rqmc = {family: _costs(results, RQMC, family) for family in FAMILIES}
    text = (
        f"Over a step of plain gradients with ten draws: QuadCV takes {_span(quad['mean-field'])} times "
        f"as long with a mean-field Gaussian (the paper says 1.5 to 2), {_span(quad['low-rank'])} at "
        f"rank 5 and {_span(quad['real-nvp'])} with Real NVP; 50 draws take {_span(fifty)} times; "
        f"`quiet` {_span(quiet['mean-field'])} with a mean-field Gaussian, where it takes two draws, "
        f"{_span(quiet['low-rank'])} at rank 5 and {_span(quiet['real-nvp'])} with Real NVP; `rqmc` "
        f"{_span(rqmc['mean-field'])}, {_span(rqmc['low-rank'])} and {_span(rqmc['real-nvp'])}."
    )
    true = max(quad["mean-field"]) < min(quad["real-nvp"]) and max(quiet["mean-field"]) < 1
    return Sentence(text, true, f"{quad}")


def _costs(results: Results, key: Key | None, *families: str) -> list[float]:
    """Step times over NoCV's with ten draws; `quiet` with its own draws where no key is given."""
    found = []
    for task, family in PLACES:
        if family in families:
            own = results.quiet(task, family) if key is None else key
            ratio = step_ratio(results, (task, family), own, paper("nocv", 10))
            found += [] if ratio is None else [ratio.middle]
    return found


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def early(results: Results) -> Sentence:
    """How far and how long QuadCV is behind in the two cases that the paper names."""
    logistic = _behind(results, "a1a", "mean-field")
    poisson = _behind(results, "frisk", "real-nvp")
    gaps, steps = [gap for gap, _ in logistic], [step for _, step in logistic]
    late = [step for gap, step in poisson if gap < 0]
    text = (
        f"On a1a QuadCV is behind in all {len(logistic)} repetitions, by {-max(gaps):.0f} to "
        f"{-min(gaps):.0f} nats at worst, for {min(steps):,.0f} to {max(steps):,.0f} of 12,000 steps. "
        f"On frisk {len(late)} of {len(poisson)} begin behind, for at most {max(late):,.0f} of 24,000 "
        "steps, and all are far ahead after that: by the median over the climb, which is what claim 5 "
        "is judged by, QuadCV is ahead."
    )
    true = max(gaps) < 0 and 0 < len(late) < len(poisson) and max(late) < 2_400
    return Sentence(text, true, f"{logistic}, {poisson}")


def _behind(results: Results, task: str, family: str) -> list[tuple[float, float]]:
    """By repetition: the worst gap of QuadCV to NoCV, and the first step at which it is ahead."""
    plain, quad = (results.runs(task, family, paper(label, 10)) for label in ("nocv", "quadcv"))
    found = []
    for rep in sorted(plain.keys() & quad.keys()):
        gap = quad[rep].column("elbo") - plain[rep].column("elbo")
        ahead = int(np.argmax(gap[1:] > 0)) + 1
        found.append((float(np.min(gap)), float(plain[rep].column("step")[ahead])))
    return found


def flow_noise(results: Results) -> Sentence:
    """Variance and price of `quiet` and `rqmc` for flows, beside QuadCV."""
    like, less, prices = [], [], []
    for task in TASKS:
        place = (task, "real-nvp")
        quad = results.ratio(*place, paper("quadcv", 10))
        ours = [results.ratio(*place, key) for key in (("main", "quiet", 10), RQMC)]
        known = [ratio.middle for ratio in ours if ratio is not None]
        if quad is None or len(known) < 2:
            continue
        (like if max(known) < 1.05 * quad.middle else less).append(task)
        for key in (("main", "quiet", 10), RQMC):
            price = step_ratio(results, place, key, paper("quadcv", 10))
            prices += [] if price is None else [price.middle]
    text = (
        "The same, and smaller still with 50 draws. `quiet` and `rqmc` remove as much as QuadCV on "
        f"{' and '.join(like)} and less on {' and '.join(less)}, for {min(prices):.1f} to "
        f"{max(prices):.1f} of the time of its step."
    )
    more = [
        (few, many)
        for task in TASKS
        if (few := results.ratio(task, "real-nvp", paper("quadcv", 10)))
        and (many := results.ratio(task, "real-nvp", paper("quadcv", 50)))
    ]
    true = all(few.middle < many.middle for few, many in more) and bool(like and less)
    return Sentence(text, true, f"{like}, {less}, {prices}")


def floor(results: Results) -> Sentence:
    """Whether the sampled entropy explains the late variance ratio of QuadCV at rank 5."""
    higher, by_entropy, other = [], [], []
    for task in TASKS:
        mean_field, rank = (
            results.ratio(task, family, paper("quadcv", 10)) for family in ("mean-field", "low-rank")
        )
        if mean_field is not None and rank is not None and task != "redwine-mini":
            higher.append(mean_field.middle < rank.middle)
        keys: list[Key] = [("entropy", label, 10) for label in ("quadcv", "quadcv closed")]
        sampled, closed = (results.ratio(task, "low-rank", key) for key in keys)
        if sampled is not None and closed is not None:
            (by_entropy if 2 * closed.middle < sampled.middle else other).append(
                f"{task} ({sampled.middle:.2g} sampled, {closed.middle:.2g} in closed form)"
            )
    text = (
        "QuadCV's floor is higher than with a mean-field Gaussian. The noise of the sampled entropy, "
        f"which it leaves alone, explains most of it on {listed(by_entropy)}, and not on "
        f"{listed(other)}: [the entropy at rank 5](#the-entropy-at-rank-5)."
    )
    return Sentence(text, all(higher) and bool(by_entropy and other), f"{by_entropy}, {other}")


def slow_start(results: Results) -> Sentence:
    """The one start of frisk that needs longest, which moves means."""
    runs = results.runs("frisk", "mean-field", paper("nocv", 10))
    best = max(late_elbo(run) for run in runs.values())
    places = {rep: held_index(run.elbo, best - 10) for rep, run in runs.items()}
    steps = sorted(
        math.inf if place is None else float(runs[rep].column("step")[place])
        for rep, place in places.items()
    )
    text = (
        f"Means and medians differ on the way. One of {len(steps)} frisk starts needs {steps[-1]:,.0f} "
        f"steps to within 10 nats of the best, the others at most {steps[-2]:,.0f}; while it climbs it "
        "moves the mean by hundreds of nats. By the end they agree."
    )
    return Sentence(text, 2 * steps[-2] < steps[-1] < math.inf, f"{steps}")


def lppd_window(results: Results) -> Sentence:
    """Test lppd of the full-batch network against the window that the paper shows."""
    place = ("redwine", "mean-field")
    ends = [late_lppd(run) for run in results.runs(*place, paper("nocv", 10)).values()]
    gain = results.gain(*place, paper("quadcv", 10), paper("nocv", 10), measure=late_lppd)
    assert gain is not None
    text = (
        f"All runs of plain gradients end at {min(ends):.1f} to {max(ends):.1f}, below the paper's "
        f"window, on other 100 rows. QuadCV ends {-gain.middle:.1f} nats *below* NoCV "
        f"({-gain.high:.1f} to {-gain.low:.1f})."
    )
    return Sentence(signed(text), max(ends) < -145 and clearly(gain) < 0, f"{ends}, {gain}")


def second_order(results: Results) -> Sentence:
    """What second order does to the ELBO: single dips, and nothing where runs end."""
    place = ("frisk", "mean-field")
    base, more = (
        results.runs(*place, key) for key in (paper("zvcv-gd", 10), ("ablation", "zvcv-gd order 2", 10))
    )
    dips = []
    for rep in sorted(base.keys() & more.keys()):
        # From two nats below its end on, a run of first order has arrived.
        first = held_index(base[rep].elbo, late_elbo(base[rep]) - 2)
        gaps = (more[rep].elbo - base[rep].elbo)[first:]
        dips.append(float(np.min(gaps)))
    deep = sorted(-dip for dip in dips if dip < -2)
    gain = results.gain(*place, ("ablation", "zvcv-gd order 2", 10), paper("zvcv-gd", 10))
    assert gain is not None
    text = (
        f"Second order adds noise in bursts, as the paper says. In {len(deep)} of {len(dips)} "
        "repetitions the ELBO dips once after it has arrived, by "
        f"{listed(f'{dip:.0f}' for dip in deep)} nats, and recovers; where runs end it does not "
        f"suffer ({gain.middle:+.2f} nats, "
        f"{gain.low:+.2f} to {gain.high:+.2f})."
    )
    parts = results.claims[11].parts
    verdicts = parts[1].verdict is Verdict.HOLDS and parts[2].verdict is Verdict.DOES_NOT
    true = verdicts and 0 < len(deep) < len(dips) / 2 and clearly(gain) == 0
    return Sentence(signed(text), true, f"{dips}, {gain}")


def broken_runs(results: Results) -> Sentence:
    """Runs whose parameters turned NaN: which, when, and that a mean over their last tenth is sound."""
    found = [run for run in results.study.done if broken(run) and run.cell.group != "rates"]
    sgd = [run for run in found if not run.cell.ends_itself]
    told = [
        f"{run.cell.task} {FAMILIES[run.cell.family]} {label_name(run.cell.label)}"
        f"{'' if run.cell.draws is None else f' {run.cell.draws}'}, after {run.column('step')[-1]:,.0f} "
        "steps"
        for run in sgd
    ]
    text = (
        f"†: of {len(results.study.done)} runs, {len(sgd)} with a rate of the paper's turned NaN late "
        f"({'; '.join(told)}). They count up to there."
    )
    late = all(run.column("step")[-1] > 0.5 * (run.cell.steps or 0) for run in sgd)
    near = all(run.cell.family == "low-rank" and run.cell.task == "frisk" for run in sgd)
    return Sentence(text, late and near, f"{[run.cell.name for run in found]}")


FALLING = (("nocv", 10), ("quadcv", 10), ("nocv", 50), ("quadcv", 50), ("quiet", 10))
REPS = 3


def falling_runs(results: Results) -> Sentence:
    """Which rows with a falling step have fewer repetitions than falling.toml plans."""
    told = []
    for place in PLACES:
        fewer: dict[int, list[str]] = {}
        for label, draws in FALLING:
            count = len(results.runs(*place, falling(label, draws)))
            if count < REPS:
                name = label_name(label) + ("" if label == "quiet" else f" {draws}")
                fewer.setdefault(count, []).append(name)
        if fewer:
            how = "; ".join(f"{listed(names)} {TIMES[count]}" for count, names in fewer.items())
            told.append(f"{place[0]} {FAMILIES[place[1]]}: {how}")
    text = (
        "All rows with a falling step have three repetitions."
        if not told
        else "Rows with a falling step have three repetitions but for these, for want of processor "
        f"time. {'. '.join(told)}."
    )
    return Sentence(text, holds=True, evidence=f"{told}")


TIMES = {0: "not run", 1: "once", 2: "twice"}


def ratio_falls(results: Results) -> Sentence:
    """Where QuadCV's variance ratio is when the ELBO of the full-batch network arrives."""
    shares = []
    for draws in DRAWS:
        for run in results.runs("redwine", "mean-field", paper("quadcv", draws)).values():
            place = held_index(run.elbo, late_elbo(run) - 1)
            assert place is not None
            ratio = run.column("variance_ratio")[: place + 1]
            known = ratio[np.isfinite(ratio)]
            shares.append((float(known[0]), float(known[-1]), late_variance_ratio(run)))
    there = [ratio for _, ratio, _ in shares]
    ends = [ratio for *_, ratio in shares]
    text = (
        "Its ratio falls during the climb. When the ELBO is within a nat of its end, the ratio is "
        f"{min(there):.2f} to {max(there):.2f}; it goes on to {min(ends):.3f} to {max(ends):.3f}."
    )
    true = all(first > 0.5 and there < 0.1 and last < there for first, there, last in shares)
    return Sentence(text, true, f"{shares}")


def bias(results: Results) -> Sentence:
    """Whether in-sample coefficients show a bias: Stein control variates and QuadCV's beta."""
    rows = json.loads((results.study.directory / "bias.json").read_text(encoding="utf-8"))["rows"]
    stein = [
        (row["bias_squared"] / row["plain_variance"], row["bias_squared"] / row["bias_error"])
        for row in rows
        if "others" not in row["label"]
    ]
    more = json.loads((results.study.directory / "beta.json").read_text(encoding="utf-8"))["rows"]
    quad = {
        label: [
            (each["bias_squared"], each["bias_squared"] / each["bias_error"])
            for row in more
            for each in row["bias"]
            if each["label"] == label
        ]
        for label in ("in-sample", "lagged")
    }
    inside, lagged = quad["in-sample"], quad["lagged"]
    share = max(each["bias_squared"] / each["variance"] for row in more for each in row["bias"])
    text = (
        f"In-sample Stein coefficients: of {len(stein)} rows {_far(stein)} is more than two standard "
        f"errors above zero, and the largest squared bias is {max(b for b, _ in stein):.1g} of NoCV's "
        f"variance. QuadCV's beta in-sample: {_far(inside)} of {len(inside)} rows, most of them early; "
        f"its lagged beta, which is unbiased: {_far(lagged)} of {len(lagged)} (the errors are rough: "
        f"one such row is {-min(errors for _, errors in lagged):.0f} of them below zero). So the "
        "bias that the paper warns of can be seen, on the network, too. It is small: its square is at "
        f"most {share:.0%} of the variance that is left."
    )
    seen = _far(inside) > len(inside) / 3 > _far(lagged)
    return Sentence(signed(text), seen and share < 0.1 and _far(stein) == 1, f"{quad}")


def _far(rows: Sequence[tuple[float, float]]) -> int:
    return sum(errors > 2 for _, errors in rows)


REMARKS: dict[str, Callable[[Results], Sentence]] = {
    "costs": costs,
    "early": early,
    "flow-noise": flow_noise,
    "floor": floor,
    "slow-start": slow_start,
    "second-order": second_order,
    "ratio-falls": ratio_falls,
    "broken-runs": broken_runs,
    "falling-runs": falling_runs,
    "lppd-window": lppd_window,
    "bias-remark": bias,
}
