"""Tables of the published study beside the paper's rows: coefficients, flows, judges, methods, bias.

Written as those of `blocks.py`; `tables.py` puts both into the pages.
"""

import json
from collections.abc import Callable

import numpy as np
from blocks import gained, placed, plusminus, spread, table
from findings import CRITERIA, RATES, judged_twice
from results import (
    FAMILIES,
    PLACES,
    TASKS,
    Key,
    Results,
    falling,
    late_lppd,
    paired,
    paper,
    plain,
)

from quietgrad.evaluation.arrival import held_index
from quietgrad.report.bias import bias_rows
from quietgrad.report.names import label_name
from quietgrad.report.numbers import nats, number, with_error
from quietgrad.study.interval import Interval
from quietgrad.study.summary import Row


def entropy(results: Results) -> str:
    """QuadCV at rank 5 with three treatments of the entropy: late ELBO and late variance ratio."""
    labels = ("quadcv", "quadcv closed", "quadcv stl", "nocv closed", "nocv stl")
    base = plain("low-rank")
    heads = ["task", "reps", "NoCV 10", *(f"{ENTROPIES[label]}" for label in labels)]
    lines = []
    for task in TASKS:
        place = (task, "low-rank")
        level = results.level(*place, base)
        if level is None:
            continue
        cells = []
        for label in labels:
            key: Key = ("entropy", label, 10)
            gain = gained(results, place, key, base)
            ratio = results.ratio(*place, key)
            cells.append(f"{gain}; {spread(ratio)}" if gain != "not run" else gain)
        lines.append([task, str(level.reps), nats(level.middle), *cells])
    return table(heads, lines) if lines else "(not run yet)"


ENTROPIES = {
    "quadcv": "QuadCV, sampled",
    "quadcv closed": "QuadCV, closed form",
    "quadcv stl": "QuadCV, STL",
    "nocv closed": "NoCV, closed form",
    "nocv stl": "NoCV, STL",
}


def criteria(results: Results) -> str:
    """QuadCV's beta by criterion, shared or one for each parameter: late ELBO and variance ratio."""
    labels = [f"{name}, {how}" for how in ("shared", "per dimension") for name in CRITERIA]
    base = plain("mean-field")
    lines = []
    for task in TASKS:
        place = (task, "mean-field")
        reps = len(results.runs(*place, ("beta", labels[0], 10)))
        if not reps:
            continue
        cells = []
        for label in labels:
            key: Key = ("beta", label, 10)
            gain = gained(results, place, key, base)
            cells.append(gain if gain == "not run" else f"{gain}; {spread(results.ratio(*place, key))}")
        lines.append([task, str(reps), *cells])
    return table(["task (mean-field)", "reps", *labels], lines) if lines else "(not run yet)"


def rates(results: Results) -> str:
    """The paper's four learning rates: where NoCV with ten draws ends, and when it is near the best."""
    lines = []
    for task, family in PLACES:
        keys: list[Key] = [("rates", f"nocv, rate {name}", None) for name in RATES]
        rows = [results.row(task, family, key) for key in keys]
        if any(row is not None for row in rows):
            cells = [_rate(results, task, family, key, row) for key, row in zip(keys, rows, strict=True)]
            lines.append([task, FAMILIES[family], *cells])
    return table(["task", "family", *RATES], lines) if lines else "(not run yet)"


# Nats from the best of the four rates that are "respectable" in the sweep.
RESPECTABLE = 10.0


def _rate(results: Results, task: str, family: str, key: Key, row: Row | None) -> str:
    level = results.level(task, family, key)
    if row is None or level is None:
        return "not run"
    levels = [results.level(task, family, ("rates", f"nocv, rate {name}", None)) for name in RATES]
    best = max(each.middle for each in levels if each is not None and each.middle == each.middle)
    run = results.runs(task, family, key)[0]
    place = held_index(run.elbo, best - RESPECTABLE)
    when = "–" if place is None else f"step {run.column('step')[place]:,.0f}"
    return f"{nats(level.middle)}; {when}"


def flows(results: Results) -> str:
    """The two readings of the Real NVP: where the grid's ends, and paired differences from it."""
    lines = []
    for task in TASKS:
        for label in ("nocv", "quadcv"):
            other = results.runs(task, "real-nvp-scaled", ("flows", label, 10))
            own: Key = ("judge", label, 10)
            base = results.runs(task, "real-nvp", own)
            reps = sorted(other.keys() & base.keys())
            level = results.level(task, "real-nvp", own, reps) if reps else None
            if level is None:
                continue
            ends = (other, results.runs(task, "mean-field", own))
            gaps = [paired(runs, base, reps=reps) for runs in ends]
            told = [
                plusminus(gap) if gap.reps > 1 else f"{gap.middle:+.2f} (one)" for gap in gaps if gap
            ]
            lines.append([task, label_name(label), str(len(reps)), nats(level.middle), *told])
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
    heads = ["task", "family", "L", "reps", "constant step", "falling step"]
    lines = []
    for place in PLACES:
        for draws in (10, 50):
            pairs = [(make("quadcv", draws), make("nocv", draws)) for make in (paper, falling)]
            if results.gain(*place, *pairs[0], measure=late_lppd) is None and draws == 10:
                # The grid has test lppd of one model only.
                pairs[0] = ((plain(place[1])[0], "quadcv", 10), plain(place[1]))
            known = [pair for pair in pairs if results.gain(*place, *pair, measure=late_lppd)]
            if known:
                reps = results.shared(*place, (key for pair in known for key in pair))
                cells = [gained(results, place, *pair, reps, lppd=True) for pair in pairs]
                lines.append([*placed(place), str(draws), str(len(reps)), *cells])
    return table(heads, lines)


def judges(results: Results) -> str:
    """The same rows by both judges, paired by repetition."""
    lines = [
        [task, FAMILIES[family], label_name(label), str(gap.reps), plusminus(gap)]
        for (task, family, label), gap in judged_twice(results).items()
    ]
    heads = ["task", "family", "row", "reps", "fixed pairs minus fresh draws"]
    return table(heads, lines) if lines else "(not run yet)"


METHODS = ("saa", "bam")
AUTO: Key = ("main", "auto", None)


def methods(results: Results) -> str:
    """Methods that end themselves: ELBO of the answer, seconds, how many end by their rule.

    The others' ELBO is a paired difference from `auto`'s.
    """
    lines = []
    for family in (*FAMILIES, "full-rank"):
        for task in TASKS:
            level = results.level(task, family, AUTO)
            if level is None:
                continue
            cells = [f"{nats(level.middle)}; {_ended(results, task, family, AUTO)}"]
            for label in METHODS:
                key: Key = ("main", label, None)
                gain = results.gain(task, family, key, AUTO)
                told = _ended(results, task, family, key)
                cells.append("–" if gain is None else f"{_difference(gain)}; {told}")
            lines.append([task, {**FAMILIES, "full-rank": "full rank"}[family], *cells])
    return table(["task", "family", "auto", *METHODS], lines)


def _difference(gain: Interval) -> str:
    """Wild differences with two digits of their error."""
    if abs(gain.middle) < 1e5:
        return plusminus(gain)
    return f"{gain.middle:+.1e} ± {(gain.high - gain.low) / 2:.1e}".replace("-", "−")


def _ended(results: Results, task: str, family: str, key: Key) -> str:
    runs = results.runs(task, family, key)
    if not runs:
        return ""
    seconds = float(np.median([run.column("seconds")[-1] for run in runs.values()]))
    ended = sum(run.outcome.get("fit_status") == "converged" for run in runs.values())
    return f"{number(seconds, 2)} s; {ended} of {len(runs)}"


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
            with_error(each["variance"], each.get("variance_error"), 2),
        ]
        for row in rows
        for each in row["bias"]
    ]
    heads = ["task", "family", "where", "beta", "bias²", "variance"]
    return table(heads, lines) if lines else "(not run yet)"


TABLES: dict[str, Callable[[Results], str]] = {
    "entropy": entropy,
    "criteria": criteria,
    "rates": rates,
    "flows": flows,
    "predictions": predictions,
    "judges": judges,
    "methods": methods,
    "bias": bias,
    "quadcv-bias": quadcv_bias,
}
