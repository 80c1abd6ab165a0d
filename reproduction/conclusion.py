"""The conclusion of the published study: each sentence with the statistic that it rests on.

A statement computes its numbers from the stored cells, writes its sentence with them, and says whether
what the sentence says in words is true. `tables.py` puts the sentences into the page, `statements.py`
fails if a cell has changed one of them.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from results import (
    ESTIMATORS,
    FAMILIES,
    NETWORKS,
    PLACES,
    Key,
    Results,
    clearly,
    falling,
    late_lppd,
    paper,
    plain,
)

from quietgrad.study.claim import Part, Verdict
from quietgrad.study.interval import Interval

DRAWS = (10, 50)
# Nats that make a difference worth a sentence: half of the margin of an arrival.
WORTH = 0.5


class Sentence(NamedTuple):
    """A sentence with its numbers; `holds` says whether its words are true, `evidence` by what."""

    text: str
    holds: bool
    evidence: str


Statement = Callable[[Results], Sentence]


def zvcv(results: Results) -> Sentence:
    """ZVCV-GD leaves variance and ELBO where they were."""
    ratios, above = [], 0
    for place in PLACES:
        for draws in DRAWS:
            ratio = results.ratio(*place, paper("zvcv-gd", draws))
            gain = results.gain(*place, paper("zvcv-gd", draws), paper("nocv", draws))
            ratios += [] if ratio is None else [ratio.middle]
            above += clearly(gain, WORTH) > 0
    text = (
        f"Of ZVCV-GD this holds in all {len(ratios)} settings: its late variance ratio is "
        f"{min(ratios):.2f} to "
        f"{max(ratios):.2f}, and in {_count(above)} of them does it end clearly more than half a nat "
        "above "
        "plain gradients."
    )
    return Sentence(text, min(ratios) > 0.95 and max(ratios) < 1.05 and above == 0, f"{ratios}, {above}")


def on_the_way(results: Results) -> Sentence:
    """By the clock, plain gradients are first to a respectable ELBO."""
    part = _part(results, 1, 0)
    share = re.search(r"\d+%", part.value)
    text = (
        "Of QuadCV it holds on the way: by the clock, plain gradients are the first within 10 nats of "
        "the best "
        f"in {share[0] if share else '?'} of the races ({part.uncertainty})."
    )
    return Sentence(text, part.verdict is Verdict.HOLDS, part.why)


def at_the_end(results: Results) -> Sentence:
    """At a constant step, QuadCV ends higher."""
    signs, gains = [], []
    for place in PLACES:
        for draws in DRAWS:
            gain = results.gain(*place, paper("quadcv", draws), paper("nocv", draws))
            signs.append(clearly(gain))
            if gain is not None and clearly(gain) > 0:
                gains.append(gain.middle)
    higher, lower = signs.count(1), signs.count(-1)
    text = (
        "At the end of a run with a constant step it does not: there QuadCV is clearly above plain "
        "gradients "
        f"with as many draws in {higher} of {len(signs)} settings, by {min(gains):+.1f} to "
        f"{max(gains):+.0f} nats, and clearly below in {_count(lower)}."
    )
    return Sentence(text, higher > len(signs) / 2 and lower == 0, f"{signs}")


def best_on_networks(results: Results) -> Sentence:
    """Who ends within a nat of the best on the networks at a constant step."""
    near = {kind: dict.fromkeys(ESTIMATORS, 0) for kind in ("gaussian", "flow")}
    for family in FAMILIES:
        for task in NETWORKS:
            place = (task, family)
            # Above plain gradients of the same judge: the best row may be of another than the grid.
            gains = [results.above_plain(*place, key) for key in _keys(results, place)]
            best = max(gain.middle for gain in gains if gain is not None)
            for label in ESTIMATORS:
                own = [results.above_plain(*place, paper(label, draws)) for draws in DRAWS]
                there = any(gain is not None and gain.middle > best - 1 for gain in own)
                near["flow" if family == "real-nvp" else "gaussian"][label] += there
    gaussian, flow = near["gaussian"], near["flow"]
    told = (
        f"QuadCV ends within 1 nat of the best row in {gaussian['quadcv']} of 4 pairs of model and "
        f"family, plain gradients in {_count(gaussian['nocv'])} and ZVCV-GD in "
        f"{_count(gaussian['zvcv-gd'])}; with Real NVP it is {flow['quadcv']}, {flow['nocv']} and "
        f"{flow['zvcv-gd']} of 2."
    )
    text = f"But that is seldom the best ELBO: on the networks with a Gaussian family, {told}"
    return Sentence(text, gaussian["nocv"] <= gaussian["quadcv"] <= 2, f"{near}")


def fifty_by_steps(results: Results) -> Sentence:
    """Fifty draws need fewer steps."""
    part, price = _part(results, 2, 1), _part(results, 2, 0)
    steps, seconds = re.findall(r"([\d.]+) times", part.value)
    cost = re.findall(r"([\d.]+) times", price.value)[0]
    text = (
        f"By steps this holds: to within 10 nats of the best, 50 draws need {steps} times the steps of "
        "10. On "
        f"two cores they cost {cost} times as much a step, so that it takes {seconds} times the "
        "seconds; on the "
        "paper's A100 a step costs next to nothing more, it says, which these runs cannot judge."
    )
    true = part.verdict is Verdict.HOLDS and price.verdict is Verdict.ELSEWHERE and float(seconds) > 1
    return Sentence(text, true, f"{part.why}; {price.why}")


def fifty_or_quadcv(results: Results) -> Sentence:
    """Fifty plain draws against ten with QuadCV."""
    signs = [clearly(results.gain(*place, paper("nocv", 50), paper("quadcv", 10))) for place in PLACES]
    higher, lower, open_ = signs.count(1), signs.count(-1), signs.count(0)
    text = (
        "Where runs end, neither is the better rule: 50 plain draws end clearly above QuadCV with 10 "
        "in "
        f"{higher} of {len(signs)} pairs of model and family, clearly below in {lower}, and {open_} "
        "are open."
    )
    return Sentence(text, higher > 1 and lower > 1, f"{dict(zip(PLACES, signs, strict=True))}")


def gap_falls(results: Results) -> Sentence:
    """The gap between estimators decreases with L."""
    part = _part(results, 14, 0)
    text = (
        "And as the paper says, the gap between the estimators gets smaller with more draws: "
        f"{part.value.removeprefix('smaller ')}."
    )
    return Sentence(text, part.verdict is Verdict.HOLDS, part.why)


def predictions(results: Results) -> Sentence:
    """Less variance is not reliably better prediction."""
    gains = {
        family: results.gain(
            "redwine", family, paper("quadcv", 10), paper("nocv", 10), measure=late_lppd
        )
        for family in FAMILIES
    }
    known = {family: gain for family, gain in gains.items() if gain is not None}
    falls = {
        family: results.gain(
            "redwine", family, falling("quadcv", 10), falling("nocv", 10), measure=late_lppd
        )
        for family in FAMILIES
    }
    lift = results.gain("redwine", "mean-field", paper("quadcv", 10), paper("nocv", 10))
    text = (
        "This stands: on the full-batch network with a mean-field Gaussian, QuadCV with 10 draws raises "
        "the ELBO of plain gradients and lowers the lppd of its 100 test rows, by "
        f"{-known['mean-field'].middle:.1f} nats ({-known['mean-field'].high:.1f} to "
        f"{-known['mean-field'].low:.1f}). It is no rule: with rank 5 and Real NVP it raises both, the "
        f"lppd by {_interval(known['low-rank'])} and {_interval(known['real-nvp'])} nats. With a "
        f"falling step the three change by {listed(_interval(gain) for gain in falls.values() if gain)}."
    )
    true = clearly(known["mean-field"]) < 0 < clearly(lift)
    others = all(clearly(known[family]) > 0 for family in ("low-rank", "real-nvp"))
    return Sentence(text, true and others and all(falls.values()), f"{known}, {falls}")


def constant_step(results: Results) -> Sentence:
    """With a constant step, less variance raises the ELBO of Gaussian families."""
    settings = [place for place in PLACES if place[1] != "real-nvp"]
    signs = [clearly(results.gain(*p, paper("quadcv", 10), paper("nocv", 10))) for p in settings]
    text = (
        "For the ELBO itself it depends on the step. With a constant one, the noise of the gradient "
        "sets how "
        f"far below the optimum a run comes to rest, and with 10 draws QuadCV lifts it clearly in "
        f"{signs.count(1)} of {len(settings)} settings with a Gaussian family."
    )
    return Sentence(text, signs.count(1) >= len(signs) - 1 and signs.count(-1) == 0, f"{signs}")


def falling_step(results: Results) -> Sentence:
    """A falling step gains as much, and leaves less for the control variate."""
    rows = []
    for place in PLACES:
        # The same repetitions at both step rules.
        reps = results.shared(*place, (falling("quadcv", 10), falling("nocv", 10)))
        constant = results.gain(*place, paper("quadcv", 10), paper("nocv", 10), reps=reps)
        step = results.gain(*place, falling("nocv", 10), plain(place[1]), reps=reps)
        both = results.gain(*place, falling("quadcv", 10), falling("nocv", 10), reps=reps)
        if constant is None or step is None or both is None:
            continue
        # One repetition cannot be clear: rows that were run once do not count.
        if min(step.reps, both.reps) > 1:
            rows.append((place, constant, step, both))
    less = sum(abs(both.middle) < abs(constant.middle) for _, constant, _, both in rows)
    helps = sum(clearly(step) > 0 for _, _, step, _ in rows)
    told = next((row for row in rows if row[0] == ("redwine", "mean-field")), None)
    top = max(
        (
            (gain.middle, f"{name}, {place[0]}, {FAMILIES[place[1]]}")
            for place in PLACES
            if place[1] != "real-nvp"
            for label, name in (("quadcv", "QuadCV"), ("quiet", "`quiet`"))
            if (gain := results.gain(*place, falling(label, 10), falling("nocv", 10)))
            and clearly(gain) > 0
        ),
        default=(0.0, "none"),
    )
    example = ""
    if told is not None:
        _, constant, step, both = told
        example = (
            f" On the full-batch network with a mean-field Gaussian, a falling step is worth "
            f"{step.middle:+.1f} nats to plain gradients, and QuadCV {constant.middle:+.1f} at a "
            f"constant step and {both.middle:+.2f} at a falling one ({both.reps} starts)."
        )
    text = (
        "A step size that falls to zero removes the same noise at no cost: it lifts plain gradients "
        "clearly in "
        f"{helps} of the {len(rows)} settings in which both were run more than once, and with it "
        f"the gain of QuadCV is smaller in {less} of {len(rows)}. With a Gaussian family, the most that "
        f"QuadCV with 10 draws or `quiet` clearly gains at a falling step is {top[0]:+.1f} nats "
        f"({top[1]}).{example} The paper did not try one."
    )
    enough = bool(rows) and 0 < top[0] < 3 and helps >= 0.75 * len(rows) and less >= 0.75 * len(rows)
    return Sentence(text, enough, f"{[(p, b.middle) for p, _, _, b in rows]}")


GROUPS: tuple[tuple[str, tuple[Statement, ...]], ...] = (
    (
        "neither the ZVCV-adjusted nor the QuadCV-adjusted estimator provided substantial improvement "
        "in our "
        "evaluation metrics to justify their implementation",
        (zvcv, on_the_way, at_the_end, best_on_networks),
    ),
    (
        "simply increasing the number of gradient samples was highly effective for improving "
        "convergence time",
        (fifty_by_steps, fifty_or_quadcv, gap_falls),
    ),
    (
        "reducing gradient variance alone is insufficient to improve downstream performance",
        (predictions, constant_step, falling_step),
    ),
)


def conclusion(results: Results) -> str:
    """The conclusion of the page: the paper's sentences, and what the cells say about each."""
    return signed(
        "\n".join(
            "\n    - ".join([f"- *“{quote}.”*", *(each(results).text for each in statements)])
            for quote, statements in GROUPS
        )
    )


def signed(text: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


def listed(names: Iterable[str]) -> str:
    """Names as a list in a sentence."""
    *first, last = [*names] or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def _part(results: Results, number: int, place: int) -> Part:
    return results.claims[number - 1].parts[place]


def _keys(results: Results, place: tuple[str, str]) -> set[Key]:
    """The rows of the grid and with a falling step on this task and family."""
    cells = [run.cell for run in results.study.done if (run.cell.task, run.cell.family) == place]
    return {(c.group, c.label, c.draws) for c in cells if c.group in ("main", "decay")}


def _count(number: int) -> str:
    return "none" if number == 0 else str(number)


def _interval(gain: Interval) -> str:
    if gain.reps < 2:
        return f"{gain.middle:+.1f} (one repetition)"
    return f"{gain.middle:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"
