"""The tables of the published study, as Markdown. `tables.py` puts them into the pages.

± is half of a 90% interval over repetitions (over rounds of the timing pass where seconds are compared).
The cells of a line are over the same repetitions, those that all of its rows have.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from conclusion import signed
from results import (
    ESTIMATORS,
    FAMILIES,
    PLACES,
    Key,
    Results,
    falling,
    late_lppd,
    paper,
    plain,
    step_ratio,
)

from quietgrad.report.names import label_name
from quietgrad.report.numbers import nats, number
from quietgrad.study.claim import Part, Verdict
from quietgrad.study.interval import Interval
from quietgrad.study.plateau import late_elbo

MARKS = {
    Verdict.HOLDS: "✓ holds",
    Verdict.SHOWN: "✓ shown",
    Verdict.DOES_NOT: "✗ does not",
    Verdict.CANNOT_TELL: "? open",
    Verdict.ELSEWHERE: "– not on this machine",
}
RISING, BROKEN = "↑", "†"
SIX: tuple[Key, ...] = tuple(paper(label, draws) for draws in (10, 50) for label in ESTIMATORS)
AUTO: Key = ("main", "auto", None)
# The rows of the table of arrivals; None is `quiet` with its own draws.
ARRIVALS: tuple[Key | None, ...] = (*SIX, None, AUTO)


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
        return signed(part.why)
    return signed(part.value) + (f" ({signed(part.uncertainty)})" if part.uncertainty else "")


def ends(results: Results) -> str:
    """Where the paper's six rows end: NoCV with ten draws, and paired differences from it."""
    heads = ["task", "family", "reps", "NoCV 10"]
    heads += [f"{label_name(label)} {draws}" for _, label, draws in SIX[1:]]
    lines = []
    for place in PLACES:
        reps = results.shared(*place, SIX)
        level = results.level(*place, SIX[0], reps)
        if level is None:
            continue
        gains = [gained(results, place, key, SIX[0], reps) for key in SIX[1:]]
        own = f"{nats(level.middle)}{marks(results, place, SIX[0], reps)}"
        lines.append([*placed(place), str(level.reps), own, *gains])
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
        keys = (falling("nocv", 10), results.quiet(*place), falling("quiet", 10), AUTO)
        base = plain(place[1])
        reps = results.shared(*place, (base, *keys))
        level = results.level(*place, base, reps)
        if level is not None:
            gains = [gained(results, place, key, base, reps) for key in keys]
            lines.append([*placed(place), str(level.reps), nats(level.middle), *gains])
    return table([*heads, "auto"], lines)


def falls(results: Results) -> str:
    """The same step rule on both sides: the gain of QuadCV, of 50 draws and of `quiet` at each."""
    heads = ["task", "family", "reps", "a falling step for NoCV 10"]
    for name in ("QuadCV 10", "NoCV 50", "QuadCV 50", "quiet"):
        heads += [f"{name} over NoCV 10, constant", "falling"]
    rows = (("quadcv", 10), ("nocv", 50), ("quadcv", 50))
    bases = (paper("nocv", 10), falling("nocv", 10))
    lines = []
    for place in PLACES:
        keys = [make(*row) for row in rows for make in (paper, falling)]
        keys += [results.quiet(*place), falling("quiet", 10)]
        reps = results.shared(*place, (*bases, plain(place[1]), *keys))
        if not results.runs(*place, bases[1]):
            continue
        cells = [gained(results, place, bases[1], plain(place[1]), reps)]
        # `quiet` at a constant step has the judge of the other rows, as plain gradients run again have.
        over = [*bases * len(rows), plain(place[1]), bases[1]]
        cells += [gained(results, place, key, base, reps) for key, base in zip(keys, over, strict=True)]
        lines.append([*placed(place), str(len(reps)), *cells])
    return table(heads, lines)


def arrivals(results: Results) -> str:
    """Seconds until the ELBO is within 1 nat of the best of all rows, and stays there to the end."""
    heads = ["task", "family", "reps", *(f"{label_name(label)} {draws}" for _, label, draws in SIX)]
    lines = []
    for place in PLACES:
        keys = [key or results.quiet(*place) for key in ARRIVALS]
        reps = results.shared(*place, keys)
        if reps:
            cells = [_arrival(results, place, key, reps) for key in keys]
            lines.append([*placed(place), str(len(reps)), *cells])
    return table([*heads, "quiet", "auto"], lines)


def _arrival(results: Results, place: tuple[str, str], key: Key, reps: Sequence[int]) -> str:
    runs = results.runs(*place, key)
    found = [results.arrivals[runs[rep].cell.name] for rep in reps if rep in runs]
    if not found:
        return "not run"
    late = [math.inf if each.seconds is None else each.seconds for each in found]
    arrived = sum(each.steps is not None for each in found)
    middle = float(np.median(late))
    if math.isfinite(middle):
        reach = f"{number(min(late), 2)} to {number(max(late), 2)}"
        told = reach if arrived == len(found) else f"{arrived} of {len(found)}"
        return f"**{number(middle, 2)} s** ({told})"
    if arrived:
        return f"{arrived} of {len(found)} arrive"
    ends = [late_elbo(each.record) - each.target for each in found]
    middle, low, high = map(_below, (float(np.median(ends)), min(ends), max(ends)))
    return f"{middle} ({low} to {high})"


def _below(gap: float) -> str:
    # A run can be at the mark by its mean and not hold it.
    return "0" if gap > -0.005 else f"{gap:,.{2 if gap > -10 else 0}f}".replace("-", "−")


def step_cost(results: Results) -> str:
    """What a step costs, against NoCV with ten draws."""
    base = paper("nocv", 10)
    heads = ["task", "family", "NoCV 10, µs a step", "ZVCV-GD 10", "QuadCV 10", "quiet", "NoCV 50"]
    lines = []
    for place in PLACES:
        row = results.row(*place, base)
        if row is None or not row.step_seconds > 0:
            continue
        keys = (paper("zvcv-gd", 10), paper("quadcv", 10), results.quiet(*place))
        keys += (paper("nocv", 50), paper("quadcv", 50))
        ratios = [step_ratio(results, place, key, base) for key in keys]
        lines.append([*placed(place), f"{1e6 * row.step_seconds:,.0f}", *map(_times, ratios)])
    return table([*heads, "QuadCV 50"], lines)


def variance(results: Results) -> str:
    """Late variance ratios to NoCV with as many draws."""
    keys = (*SIX[1:3], *SIX[4:], *(("main", label, 10) for label in ("rqmc", "quiet", "quadcv-fast")))
    heads = ["task", "family", "reps", *(f"{label_name(label)} {draws}" for _, label, draws in keys)]
    lines = []
    for place in PLACES:
        reps = results.shared(*place, keys)
        ratios = [results.ratio(*place, key, reps) for key in keys]
        if any(ratio is not None for ratio in ratios):
            lines.append([*placed(place), str(len(reps)), *map(spread, ratios)])
    return table(heads, lines)


def placed(place: tuple[str, str]) -> list[str]:
    """The first two cells of a line: model and family."""
    return [place[0], FAMILIES[place[1]]]


def gained(
    results: Results,
    place: tuple[str, str],
    key: Key,
    over: Key,
    reps: Sequence[int] = (),
    *,
    lppd: bool = False,
) -> str:
    """How far a row ends above another, paired, with half of an interval; over these repetitions."""
    measure = {"measure": late_lppd} if lppd else {}
    gain = results.gain(*place, key, over, **measure, reps=reps)
    if gain is None:
        return "not run"
    seen = "" if lppd else marks(results, place, key, reps)
    if gain.reps < 2:
        return f"{gain.middle:+.2f} (one)".replace("-", "−") + seen
    return plusminus(gain) + seen


def marks(results: Results, place: tuple[str, str], key: Key, reps: Sequence[int]) -> str:
    """What to know of a row's repetitions: still rising at the end, or ended by NaN."""
    rising = f" {RISING}" if results.rising(*place, key, reps) else ""
    return rising + (f" {BROKEN}" if results.broken(*place, key, reps) else "")


def plusminus(gain: Interval) -> str:
    """A difference with half of its interval."""
    half = (gain.high - gain.low) / 2
    places = 2 if half < 9.95 else 0
    return f"{gain.middle:+,.{places}f} ± {half:,.{places}f}".replace("-", "−")


def _times(ratio: Interval | None) -> str:
    return "–" if ratio is None else f"{ratio.middle:.2f} ± {(ratio.high - ratio.low) / 2:.2f}"


def spread(ratio: Interval | None) -> str:
    """A ratio with its relative error."""
    if ratio is None:
        return "–"
    if ratio.reps < 2:
        return number(ratio.middle, 2)
    return f"{number(ratio.middle, 2)} ± {100 * (ratio.high - ratio.low) / 2 / ratio.middle:.0f}%"


TABLES: dict[str, Callable[[Results], str]] = {
    "claims": claims,
    "ends": ends,
    "ours": ours,
    "falls": falls,
    "arrivals": arrivals,
    "step-cost": step_cost,
    "variance": variance,
}
