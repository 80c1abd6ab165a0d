"""The conclusion of the published study as data: each sentence with the statistic that it rests on.

Run from the repository: python reproduction/statements.py [--paper FILE]
A statement computes its numbers from the stored cells, writes its sentence with them, and says whether
what the sentence says in words is true. `tables.py` puts the sentences into the page. `VERIFIED` are
sentences that stand in the page as they are: they must be there, and true. Exits with 1 if a cell has
changed one of them, or if words in quotation marks are not the paper's (with `--paper`, its LaTeX).
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from results import (
    ESTIMATORS,
    FAMILIES,
    HERE,
    NETWORKS,
    PLACES,
    Key,
    Results,
    clearly,
    falling,
    late_lppd,
    paper,
    read,
)

from quietgrad.study.claim import Part, Verdict
from quietgrad.study.interval import Interval

PAGE = HERE.parent / "docs" / "reproduction.md"
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
            levels = [results.level(*place, key) for key in _keys(results, place)]
            best = max(level.middle for level in levels if level is not None)
            for label in ESTIMATORS:
                own = [results.level(*place, paper(label, draws)) for draws in DRAWS]
                there = any(level is not None and level.middle > best - 1 for level in own)
                near["flow" if family == "real-nvp" else "gaussian"][label] += there
    gaussian, flow = near["gaussian"], near["flow"]
    text = (
        "But that is seldom the best ELBO: on the networks with a Gaussian family, QuadCV ends within "
        "1 nat of "
        f"the best row in {gaussian['quadcv']} of 4 pairs of model and family, plain gradients and "
        "ZVCV-GD in "
        f"{_count(gaussian['nocv'])}; with Real NVP all three do in {flow['quadcv']} of 2."
    )
    alike = gaussian["nocv"] == gaussian["zvcv-gd"] and len(set(flow.values())) == 1
    return Sentence(text, alike and gaussian["nocv"] <= gaussian["quadcv"] <= 2, f"{near}")


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
    told = ", ".join(f"{FAMILIES[family]} {_interval(gain)}" for family, gain in known.items())
    text = (
        "This stands: on the 100 test rows of the full-batch network, QuadCV with 10 draws changes the "
        "test "
        f"lppd of plain gradients by {told} nats. With a mean-field Gaussian the ELBO rises and the "
        "predictions get slightly worse."
    )
    lift = results.gain("redwine", "mean-field", paper("quadcv", 10), paper("nocv", 10))
    true = clearly(known["mean-field"]) < 0 < clearly(lift)
    small = all(abs(gain.middle) < 5 for gain in known.values())
    return Sentence(text, true and small, f"{known}")


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
        constant = results.gain(*place, paper("quadcv", 10), paper("nocv", 10))
        step = results.gain(*place, falling("nocv", 10), paper("nocv", 10))
        both = results.gain(*place, falling("quadcv", 10), falling("nocv", 10))
        if constant is not None and step is not None and both is not None and both.reps > 1:
            rows.append((place, constant, step, both))
    less = sum(abs(both.middle) < abs(constant.middle) for _, constant, _, both in rows)
    helps = sum(clearly(step) > 0 for _, _, step, _ in rows)
    told = next((row for row in rows if row[0] == ("redwine", "mean-field")), None)
    example = ""
    if told is not None:
        _, constant, step, both = told
        example = (
            f" On the full-batch network with a mean-field Gaussian, a falling step is worth "
            f"{step.middle:+.1f} nats to plain gradients, and QuadCV {constant.middle:+.1f} at a "
            "constant step "
            f"and {both.middle:+.2f} at a falling one."
        )
    text = (
        "A step size that falls to zero removes the same noise at no cost: it lifts plain gradients "
        "clearly in "
        f"{helps} of the {len(rows)} settings in which both were run, and with it the gain of QuadCV is "
        f"smaller in {less} of {len(rows)}.{example} The paper did not try one."
    )
    enough = bool(rows) and helps >= 0.75 * len(rows) and less >= 0.75 * len(rows)
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
    return (
        "\n".join(
            f"- *“{quote}.”* " + " ".join(each(results).text for each in statements)
            for quote, statements in GROUPS
        )
        .replace("(-", "(−")
        .replace(" -", " −")
    )


def tally(results: Results) -> str:
    """How many parts of the paper's claims hold, in a sentence."""
    verdicts = [part.verdict for claim in results.claims for part in claim.parts]
    count = {verdict: verdicts.count(verdict) for verdict in Verdict}
    return (
        f"Of {len(verdicts)} parts, **{count[Verdict.HOLDS]} hold**, {count[Verdict.SHOWN]} that say "
        "what can "
        f"happen are shown by a case, **{count[Verdict.DOES_NOT]} do not hold** here, "
        f"{count[Verdict.CANNOT_TELL]} are open and {count[Verdict.ELSEWHERE]} cannot be judged on "
        "this machine."
    )


def _part(results: Results, number: int, place: int) -> Part:
    return results.claims[number - 1].parts[place]


def _keys(results: Results, place: tuple[str, str]) -> set[Key]:
    """The rows of the grid and with a falling step on this task and family."""
    cells = [run.cell for run in results.study.done if (run.cell.task, run.cell.family) == place]
    return {(c.group, c.label, c.draws) for c in cells if c.group in ("main", "decay")}


def _count(number: int) -> str:
    return "none" if number == 0 else str(number)


def _interval(gain: Interval) -> str:
    return f"{gain.middle:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"


def second_order_noise(results: Results) -> bool:
    """Claim 12: bursts of noise, and no loss of ELBO."""
    parts = results.claims[11].parts
    return parts[1].verdict is Verdict.HOLDS and parts[2].verdict is Verdict.DOES_NOT


def flow_readings(results: Results) -> bool:
    """On frisk the other reading of the flow ends more than 1,000 nats higher."""
    own = results.level("frisk", "real-nvp", paper("nocv", 10))
    other = results.level("frisk", "real-nvp-scaled", ("flows", "nocv", 10))
    return own is not None and other is not None and other.middle > own.middle + 1000


def little_left(results: Results) -> bool:
    """QuadCV gains clearly at a constant step, and at most 1 nat more than nothing at a falling one."""
    gains = [results.gain(*place, falling("quadcv", 10), falling("nocv", 10)) for place in PLACES]
    known = [gain.middle for gain in gains if gain is not None and gain.reps > 1]
    gaussian = [place for place in PLACES if place[1] == "mean-field"]
    lifts = [results.gain(*place, paper("quadcv", 10), paper("nocv", 10)) for place in gaussian]
    return max(known) < 1.5 and all(clearly(lift) > 0 for lift in lifts)


def flows_and_draws(results: Results) -> bool:
    """With flows, 50 plain draws end clearly above QuadCV with 10 on one model, below on none."""
    flows = [place for place in PLACES if place[1] == "real-nvp"]
    signs = [clearly(results.gain(*p, paper("nocv", 50), paper("quadcv", 10))) for p in flows]
    return signs.count(1) == 1 and signs.count(-1) == 0


def beta_paths() -> dict[tuple[str, str], np.ndarray]:
    """Step, beta, variance ratio with it and with beta = 1, by task and family; from beta.json."""
    path = HERE / "beta.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return {(row["task"], row["family"]): np.array(row["path"]) for row in rows}


def beta(results: Results) -> str:
    """What the fitted beta was on the way, and what beta = 1 would have done."""
    del results
    paths = beta_paths()
    plain_ = {place: path for place, path in paths.items() if place[0] != "frisk"}
    low, high = (float(f([f(path[:, 1]) for path in plain_.values()])) for f in (np.min, np.max))
    apart = max(float(np.max(np.abs(path[:, 3] / path[:, 2] - 1))) for path in paths.values())
    first = max(float(path[0, 1]) for place, path in paths.items() if place[0] == "frisk")
    steps = sum(map(len, paths.values()))
    return (
        f"Recorded at {steps} steps of {len(paths)} runs of QuadCV with ten draws, beta is between "
        f"{low:.2f} and "
        f"{high:.2f} on a1a and the networks, from the first per cent of a run on. On frisk, whose "
        "start is far "
        f"off, it begins at {first:,.0f}: it makes up for a quadratic that is still too flat. It is "
        "near zero "
        "nowhere, so as a switch it is not used here. And it hardly matters: with beta = 1 the "
        "variance would "
        f"have been within {100 * apart:.0f}% of what it was at every one of these steps."
    )


def inner_descent(results: Results) -> str:
    """How far four inner steps of ZVCV-GD go: exact in the eigenvalues of the draws' Gram matrix."""
    del results
    first = {
        name: [inner_share(dim, draws, 1)[0] for draws in DRAWS]
        for name, dim in (("frisk", 37), ("a1a", 120), ("the networks", 653))
    }
    second, diverges = inner_share(37, 10, 2)
    told = "; ".join(
        f"{name} {100 * few:.1f}% and {100 * many:.1f}%" for name, (few, many) in first.items()
    )
    return (
        "Along an eigenvector of the draws' Gram matrix with eigenvalue λ, m inner steps at rate γ go "
        "1 − (1 − 2γλ/L)^m of the way to least squares. For the paper's γ = 0.001 and m = 4, on "
        "average over "
        f"eigenvectors and for L = 10 and 50: {told}. Second order on frisk (740 columns, L = 10) goes "
        f"{100 * second:.0f}% of the way, and in {100 * diverges:.1f}% of the steps its descent "
        "diverges "
        "(2γλ/L > 2)."
    )


def inner_share(dim: int, draws: int, order: int, sets: int = 400) -> tuple[float, float]:
    """The mean share of the way, and in how many sets of draws the descent diverges (seeded draws)."""
    rng = np.random.default_rng(0)
    shares, diverged = [], 0
    for _ in range(sets if dim < 200 else sets // 10):
        e = rng.standard_normal((draws, dim))
        columns = [-e]
        if order == 2:
            i, j = np.triu_indices(dim, 1)
            columns += [2 - 2 * e**2, -2 * e[:, i] * e[:, j]]
        # The intercept is descended on, too.
        design = np.concatenate([np.ones((draws, 1)), *columns], axis=1)
        values = np.linalg.eigvalsh(design @ design.T)
        speed = 2 * 0.001 * values[values > 1e-6 * values[-1]] / draws
        shares.append(float(np.mean(1 - (1 - speed) ** 4)))
        diverged += bool(speed[-1] > 2)
    return float(np.mean(shares)), diverged / len(shares)


VERIFIED: dict[str, Callable[[Results], bool]] = {
    "Second order adds noise in bursts, as the paper says, and the ELBO does not suffer here.": (
        second_order_noise
    ),
    "On frisk, taking the tanh alone costs more than 1,000 nats.": flow_readings,
    "But a step that falls to zero leaves little for a control variate to gain": little_left,
    "these end clearly higher than QuadCV with 10 on one of the four models and clearly lower on none": (
        flows_and_draws
    ),
}
BLOCKS: dict[str, Callable[[Results], str]] = {
    "conclusion": conclusion,
    "tally": tally,
    "beta": beta,
    "inner-descent": inner_descent,
}


def plain(text: str) -> str:
    """The paper's LaTeX as the words of a reader, for comparing quotations."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    for old, new in (
        (r"\nmc", "L"),
        (r"\qlbda", "q"),
        (r"\dimz", "dim z"),
        (r"\tilde \dt", "f~"),
        (r"\%", "%"),
    ):
        text = text.replace(old, new)
    # Of the paper's ties only those between words: "f~" is its f with a tilde.
    text = re.sub(r"(?<!f)~", " ", text)
    return words(text.replace("$", ""))


def words(text: str) -> str:
    """The text with single spaces, and none around an equals sign."""
    return re.sub(r"\s*=\s*", "=", re.sub(r"\s+", " ", text))


def quotations(results: Results) -> list[str]:
    """Every text that is put in quotation marks as the paper's."""
    parts = [part.quote for claim in results.claims for part in claim.parts]
    return list(dict.fromkeys([*(quote for quote, _ in GROUPS), *filter(None, parts)]))


def problems(results: Results, page: str, source: str | None = None) -> list[str]:
    """What is wrong: statements that are not true any more, sentences that are not there."""
    found = []
    for _, statements in GROUPS:
        for each in statements:
            sentence = each(results)
            if not sentence.holds:
                found.append(
                    f"{each.__name__} is not true any more: {sentence.text} ({sentence.evidence})"
                )
            if not all(map(math.isfinite, map(float, re.findall(r"[-+]?\d+\.\d+", sentence.text)))):
                found.append(f"{each.__name__} has no number: {sentence.text}")
    flat = re.sub(r"\s+", " ", page)
    for text, true in VERIFIED.items():
        if text not in flat:
            found.append(f"this sentence is not on the page: {text}")
        if not true(results):
            found.append(f"this is not true any more: {text}")
    if source is not None:
        known = plain(source)
        found += [
            f"not the paper's words: {quote}"
            for quote in quotations(results)
            if words(quote) not in known
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check everything; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", type=Path, help="the paper's LaTeX source, for the quotations")
    given = parser.parse_args(arguments).paper
    source = None if given is None else given.read_text(encoding="utf-8")
    results = read()
    found = problems(results, PAGE.read_text(encoding="utf-8"), source)
    print("\n".join(found) or "every statement holds")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
