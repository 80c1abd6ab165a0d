"""The tables of the published study, as Markdown. `tables.py` puts them into the pages.

± is half of a 90% interval over repetitions (over rounds of the timing pass where seconds are compared).
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from results import (
    ESTIMATORS,
    FAMILIES,
    PLACES,
    TASKS,
    Key,
    Results,
    falling,
    late_lppd,
    paper,
    step_ratio,
)

from quietgrad.report.bias import bias_rows
from quietgrad.report.names import label_name
from quietgrad.report.numbers import nats, number
from quietgrad.study.claim import Part, Verdict
from quietgrad.study.interval import Interval
from quietgrad.study.records import Record
from quietgrad.study.summary import Row

MARKS = {
    Verdict.HOLDS: "✓ holds",
    Verdict.SHOWN: "✓ shown",
    Verdict.DOES_NOT: "✗ does not",
    Verdict.CANNOT_TELL: "? open",
    Verdict.ELSEWHERE: "– not on this machine",
}
RISING = "↑"
SIX: tuple[Key, ...] = tuple(paper(label, draws) for draws in (10, 50) for label in ESTIMATORS)
AUTO: Key = ("main", "auto", None)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells must not hold a vertical bar."""
    rule = ["---"] * len(heads)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def claims(results: Results) -> str:
    """The paper's claims part by part: its words, what was measured, the verdict."""
    lines = []
    for claim in results.claims:
        for place, part in enumerate(claim.parts):
            told = _measured(part)
            quote = (
                "the same" if place and part.quote == claim.parts[place - 1].quote else f"“{part.quote}”"
            )
            lines.append(["" if place else str(claim.number), quote, told, MARKS[part.verdict]])
    return table(["", "the paper", "measured here, with a 90% interval or a count", "verdict"], lines)


def _measured(part: Part) -> str:
    if not part.value:
        return _signed(part.why)
    return _signed(part.value) + (f" ({_signed(part.uncertainty)})" if part.uncertainty else "")


def ends(results: Results) -> str:
    """Where the paper's six rows end: NoCV with ten draws, and paired differences from it."""
    heads = ["task", "family", "reps", "NoCV 10"]
    heads += [f"{label_name(label)} {draws}" for _, label, draws in SIX[1:]]
    lines = []
    for place in PLACES:
        level = results.level(*place, SIX[0])
        if level is None:
            continue
        gains = [_gain(results, place, key, SIX[0]) for key in SIX[1:]]
        rising = f" {RISING}" if results.rising(*place, SIX[0]) else ""
        lines.append([*_place(place), str(level.reps), f"{nats(level.middle)}{rising}", *gains])
    return table(heads, lines)


def ours(results: Results) -> str:
    """`quiet`, falling steps and `auto` against NoCV with ten draws: the same statistic, paired."""
    heads = [
        "task",
        "family",
        "reps",
        "NoCV 10",
        "NoCV 10, falling step",
        "quiet",
        "quiet, falling step",
    ]
    lines = []
    for place in PLACES:
        keys = (falling("nocv", 10), results.quiet(*place), ("decay", "quiet, decaying", None), AUTO)
        reps = sorted(results.runs(*place, results.quiet(*place)))
        level = results.level(*place, SIX[0], reps)
        if level is not None and reps:
            gains = [_gain(results, place, key, SIX[0]) for key in keys]
            lines.append([*_place(place), str(level.reps), nats(level.middle), *gains])
    return table([*heads, "auto"], lines)


def falls(results: Results) -> str:
    """The same step rule on both sides: the gain of QuadCV and of 50 draws at each."""
    heads = ["task", "family", "reps", "a falling step for NoCV 10"]
    for name in ("QuadCV 10", "NoCV 50", "QuadCV 50"):
        heads += [f"{name} over NoCV 10, constant", "falling"]
    lines = []
    for place in PLACES:
        plain = (paper("nocv", 10), falling("nocv", 10))
        reps = len(results.runs(*place, plain[1]))
        if not reps:
            continue
        cells = [_gain(results, place, plain[1], plain[0])]
        for label, draws in (("quadcv", 10), ("nocv", 50), ("quadcv", 50)):
            cells += [
                _gain(results, place, make(label, draws), base)
                for make, base in zip((paper, falling), plain, strict=True)
            ]
        lines.append([*_place(place), str(reps), *cells])
    return table(heads, lines)


def arrivals(results: Results) -> str:
    """Seconds until the ELBO is within 1 nat of the best of all rows, and stays there to the end."""
    heads = ["task", "family", *(f"{label_name(label)} {draws}" for _, label, draws in SIX)]
    lines = []
    for place in PLACES:
        rows = [results.row(*place, key) for key in (*SIX, results.quiet(*place), AUTO)]
        if any(row is not None for row in rows):
            lines.append([*_place(place), *map(_arrival, rows)])
    return table([*heads, "quiet", "auto"], lines)


def _arrival(row: Row | None) -> str:
    if row is None:
        return "not run"
    if row.seconds_to_target is not None:
        return f"**{number(row.seconds_to_target, 2)} s** ({row.arrived} of {row.reps})"
    if row.arrived:
        return f"{row.arrived} of {row.reps} arrive"
    return row.shortfall.replace("ends ", "−").replace(" short", "") if row.shortfall else "no clock"


def step_cost(results: Results) -> str:
    """What a step costs, against NoCV with ten draws."""
    plain = paper("nocv", 10)
    heads = ["task", "family", "NoCV 10, µs a step", "ZVCV-GD 10", "QuadCV 10", "quiet", "NoCV 50"]
    lines = []
    for place in PLACES:
        row = results.row(*place, plain)
        if row is None or not row.step_seconds > 0:
            continue
        keys = (paper("zvcv-gd", 10), paper("quadcv", 10), results.quiet(*place))
        keys += (paper("nocv", 50), paper("quadcv", 50))
        ratios = [step_ratio(results, place, key, plain) for key in keys]
        lines.append([*_place(place), f"{1e6 * row.step_seconds:,.0f}", *map(_times, ratios)])
    return table([*heads, "QuadCV 50"], lines)


def variance(results: Results) -> str:
    """Late variance ratios to NoCV with as many draws."""
    keys = (*SIX[1:3], *SIX[4:], *(("main", label, 10) for label in ("rqmc", "quiet", "quadcv-fast")))
    heads = ["task", "family", *(f"{label_name(label)} {draws}" for _, label, draws in keys)]
    lines = []
    for place in PLACES:
        ratios = [results.ratio(*place, key) for key in keys]
        if any(ratio is not None for ratio in ratios):
            lines.append([*_place(place), *map(_spread, ratios)])
    return table(heads, lines)


def entropy(results: Results) -> str:
    """QuadCV at rank 5 with three treatments of the entropy: late ELBO and late variance ratio."""
    labels = ("quadcv", "quadcv closed", "quadcv stl", "nocv closed", "nocv stl")
    plain: Key = ("entropy", "nocv", 10)
    heads = ["task", "reps", "NoCV 10", *(f"{ENTROPIES[label]}" for label in labels)]
    lines = []
    for task in TASKS:
        place = (task, "low-rank")
        level = results.level(*place, plain)
        if level is None:
            continue
        cells = []
        for label in labels:
            key: Key = ("entropy", label, 10)
            gain = _gain(results, place, key, plain)
            ratio = results.ratio(*place, key)
            cells.append(f"{gain}; {_spread(ratio)}" if gain != "not run" else gain)
        lines.append([task, str(level.reps), nats(level.middle), *cells])
    return table(heads, lines) if lines else "(not run yet)"


ENTROPIES = {
    "quadcv": "QuadCV, sampled",
    "quadcv closed": "QuadCV, closed form",
    "quadcv stl": "QuadCV, STL",
    "nocv closed": "NoCV, closed form",
    "nocv stl": "NoCV, STL",
}
CRITERIA = ("squared norm", "intercept", "pairwise")


def criteria(results: Results) -> str:
    """QuadCV's beta by criterion, shared or one for each parameter: late ELBO and variance ratio."""
    labels = [f"{name}, {how}" for how in ("shared", "per dimension") for name in CRITERIA]
    plain = paper("nocv", 10)
    lines = []
    for task in TASKS:
        place = (task, "mean-field")
        reps = len(results.runs(*place, ("beta", labels[0], 10)))
        if not reps:
            continue
        cells = []
        for label in labels:
            key: Key = ("beta", label, 10)
            gain = _gain(results, place, key, plain)
            cells.append(gain if gain == "not run" else f"{gain}; {_spread(results.ratio(*place, key))}")
        lines.append([task, str(reps), *cells])
    return table(["task (mean-field)", "reps", *labels], lines) if lines else "(not run yet)"


def rates(results: Results) -> str:
    """The paper's four learning rates: where NoCV with ten draws ends, and when it is near the best."""
    names = ("0.1", "0.01", "0.001", "0.0001")
    lines = []
    for task, family in PLACES:
        keys: list[Key] = [("rates", f"nocv, rate {name}", None) for name in names]
        rows = [results.row(task, family, key) for key in keys]
        if any(row is not None for row in rows):
            cells = [_rate(results, task, family, key, row) for key, row in zip(keys, rows, strict=True)]
            lines.append([task, FAMILIES[family], *cells])
    return table(["task", "family", *names], lines) if lines else "(not run yet)"


# Nats from the best of the four rates that are "respectable" in the sweep.
RESPECTABLE = 10.0


def _rate(results: Results, task: str, family: str, key: Key, row: Row | None) -> str:
    level = results.level(task, family, key)
    if row is None or level is None:
        return "not run"
    from quietgrad.evaluation.arrival import held_index

    names = ("0.1", "0.01", "0.001", "0.0001")
    levels = [results.level(task, family, ("rates", f"nocv, rate {name}", None)) for name in names]
    best = max(each.middle for each in levels if each is not None and each.middle == each.middle)
    run = results.runs(task, family, key)[0]
    place = held_index(run.elbo, best - RESPECTABLE)
    when = "–" if place is None else f"step {run.column('step')[place]:,.0f}"
    return f"{nats(level.middle)}; {when}"


def flows(results: Results) -> str:
    """The two readings of the Real NVP: where they end, means over the same repetitions."""
    lines = []
    for task in TASKS:
        for label in ("nocv", "quadcv"):
            other = results.runs(task, "real-nvp-scaled", ("flows", label, 10))
            if not other:
                continue
            reps = sorted(other)
            own = results.level(task, "real-nvp", paper(label, 10), reps)
            scaled = results.level(task, "real-nvp-scaled", ("flows", label, 10), reps)
            gauss = results.level(task, "mean-field", paper(label, 10), reps)
            told = ["–" if each is None else _level(each) for each in (own, scaled, gauss)]
            lines.append([task, label_name(label), str(len(reps)), *told])
    heads = [
        "task",
        "",
        "reps",
        "tanh alone (the grid)",
        "tanh times a learned scale",
        "mean-field Gaussian",
    ]
    return table(heads, lines) if lines else "(not run yet)"


def predictions(results: Results) -> str:
    """Test lppd of QuadCV against NoCV, at a constant and at a falling step."""
    heads = ["task", "family", "L", "constant step", "falling step"]
    lines = []
    for place in PLACES:
        for draws in (10, 50):
            cells = [
                _gain(results, place, make("quadcv", draws), make("nocv", draws), lppd=True)
                for make in (paper, falling)
            ]
            if any(cell != "not run" for cell in cells):
                lines.append([*_place(place), str(draws), *cells])
    return table(heads, lines)


def judges(results: Results) -> str:
    """The same rows by both judges: NoCV and QuadCV at rank 5, NoCV at the grid's rate."""
    lines = []
    pairs: list[tuple[str, str, Key, Key]] = [
        (task, "low-rank", ("entropy", label, 10), paper(label, 10))
        for task in TASKS
        for label in ("nocv", "quadcv")
    ]
    pairs += [
        (task, "mean-field", ("rates", "nocv, rate 0.01", None), paper("nocv", 10)) for task in TASKS
    ]
    for task, family, fixed, fresh in pairs:
        gap = results.gain(task, family, fixed, fresh)
        if gap is not None:
            both = [results.runs(task, family, key) for key in (fixed, fresh)]
            half = _scatter(*both) if gap.reps < 2 else (gap.high - gap.low) / 2
            told = f"{gap.middle:+.2f} ± {half:.2f}".replace("-", "−")
            lines.append([task, FAMILIES[family], label_name(fresh[1]), str(gap.reps), told])
    heads = ["task", "family", "row", "reps", "fixed pairs minus fresh draws"]
    return table(heads, lines) if lines else "(not run yet)"


def _scatter(first: dict[int, Record], second: dict[int, Record]) -> float:
    """Half of a 90% interval of a difference of single runs, from the scatter of their last readings."""
    spread = 0.0
    for rep in first.keys() & second.keys():
        for run in (first[rep], second[rep]):
            late = run.elbo[-max(3, len(run.elbo) // 10) :]
            spread += float(np.var(late, ddof=1)) / len(late)
    return 1.64 * math.sqrt(spread)


def bias(results: Results) -> str:
    """Squared bias, variance and mean squared error, relative to NoCV's variance."""
    heads = ["where", "coefficients", "L", "bias²", "variance", "MSE"]
    keys = ("label", "draws", "bias", "variance", "mse")
    return table(
        heads,
        (
            [row["place"].replace(", Mean-field Gaussian", ""), *(row[key] for key in keys)]
            for row in bias_rows(results.study.directory)
        ),
    )


def quadcv_bias(results: Results) -> str:
    """QuadCV with beta from earlier steps and in-sample: bias and variance over NoCV's variance."""
    path = results.study.directory / "beta.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    lines = [
        [
            row["task"],
            FAMILIES[row["family"]],
            each["where"],
            each["label"],
            f"{number(each['bias_squared'], 2)} ± {number(each['bias_error'], 1)}",
            number(each["variance"], 2),
        ]
        for row in rows
        for each in row["bias"]
    ]
    heads = ["task", "family", "where", "beta", "bias²", "variance"]
    return table(heads, lines) if lines else "(not run yet)"


def _place(place: tuple[str, str]) -> list[str]:
    return [place[0], FAMILIES[place[1]]]


def _gain(results: Results, place: tuple[str, str], key: Key, over: Key, *, lppd: bool = False) -> str:
    measure = {"measure": late_lppd} if lppd else {}
    gain = results.gain(*place, key, over, **measure)
    if gain is None:
        return "not run"
    rising = f" {RISING}" if not lppd and results.rising(*place, key) else ""
    if gain.reps < 2:
        return f"{gain.middle:+.2f} (one)".replace("-", "−") + rising
    return _plusminus(gain) + rising


def _plusminus(gain: Interval) -> str:
    half = (gain.high - gain.low) / 2
    places = 2 if half < 9.95 else 0
    return f"{gain.middle:+.{places}f} ± {half:.{places}f}".replace("-", "−")


def _level(level: Interval) -> str:
    if level.reps < 2:
        return nats(level.middle)
    return f"{nats(level.middle)} ± {(level.high - level.low) / 2:.2g}"


def _times(ratio: Interval | None) -> str:
    return "–" if ratio is None else f"{ratio.middle:.2f} ± {(ratio.high - ratio.low) / 2:.2f}"


def _spread(ratio: Interval | None) -> str:
    """A ratio with its relative error."""
    if ratio is None:
        return "–"
    if ratio.reps < 2:
        return number(ratio.middle, 2)
    return f"{number(ratio.middle, 2)} ± {100 * (ratio.high - ratio.low) / 2 / ratio.middle:.0f}%"


def _signed(text: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


TABLES: dict[str, Callable[[Results], str]] = {
    "claims": claims,
    "ends": ends,
    "ours": ours,
    "falls": falls,
    "arrivals": arrivals,
    "step-cost": step_cost,
    "variance": variance,
    "entropy": entropy,
    "criteria": criteria,
    "rates": rates,
    "flows": flows,
    "predictions": predictions,
    "judges": judges,
    "bias": bias,
    "quadcv-bias": quadcv_bias,
}
