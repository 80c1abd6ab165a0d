"""The numbers of the README: the full-batch network, mean-field, the same step rule on both sides."""

import re

import contributions
import numpy as np
from results import Key, Results, falling, paper, plain, step_ratio

from quietgrad.study.interval import Interval

PLACE = ("redwine", "mean-field")
QUIET: Key = ("main", "quiet, 2 draws", None)
QUIET_FALLING: Key = ("decay", "quiet, decaying", None)


def numbers(results: Results) -> str:
    """What the step rule, the estimator and the start gain, and what draws cost."""
    gain = {
        "quadcv": results.gain(*PLACE, paper("quadcv", 10), paper("nocv", 10)),
        "zvcv": results.gain(*PLACE, paper("zvcv-gd", 10), paper("nocv", 10)),
        "fifty": results.gain(*PLACE, paper("nocv", 50), paper("nocv", 10)),
        "step": results.gain(*PLACE, falling("nocv", 10), plain(PLACE[1])),
        "quadcv falling": results.gain(*PLACE, falling("quadcv", 10), falling("nocv", 10)),
        "fifty falling": results.gain(*PLACE, falling("nocv", 50), falling("nocv", 10)),
        "quiet falling": results.gain(*PLACE, QUIET_FALLING, falling("nocv", 10)),
    }
    cost = {
        "fifty": step_ratio(results, PLACE, paper("nocv", 50), paper("nocv", 10)),
        "quadcv": step_ratio(results, PLACE, paper("quadcv", 10), paper("nocv", 10)),
        "quiet": step_ratio(results, PLACE, QUIET, paper("nocv", 10)),
    }
    told = {name: _nats(each) for name, each in gain.items()}
    times = {
        name: "not measured" if each is None else f"{each.middle:.2g}" for name, each in cost.items()
    }
    reps = {name: 0 if each is None else each.reps for name, each in gain.items()}
    lines = [
        f"- **The step rule.** Adam's step size falling to zero is worth **{told['step']} nats** to "
        f"plain gradients with 10 draws (36,000 steps, {reps['step']} starts), at no cost. At a "
        f"constant step ({reps['quadcv']} starts), QuadCV gains {told['quadcv']}, 50 draws gain "
        f"{told['fifty']} and ZVCV-GD, the paper's own, {told['zvcv']}.",
        "- **The estimator.** With a falling step on both sides, over plain gradients with 10 draws: "
        f"QuadCV {told['quadcv falling']}, 50 draws {told['fifty falling']}, `quiet` with its 2 draws "
        f"{told['quiet falling']} nats. A step of QuadCV takes {times['quadcv']} times as long as one "
        f"of plain gradients, a step with 50 draws {times['fifty']} times, a step of `quiet` "
        f"{times['quiet']} times (two cores).",
    ]
    rows = contributions.stored()
    effects = contributions.effects(rows)
    if effects["start"]:
        levels = {place: float(np.mean(values)) for place, values in contributions.ends(rows).items()}
        top = contributions.best(rows)
        ends = [
            f"{name} {' and '.join(_below(levels, top, label))}"
            for label, name in (
                ("nocv 10", "plain gradients"),
                ("quadcv 10", "QuadCV"),
                ("quiet 2", "`quiet`"),
            )
        ]
        lost = [
            levels["mean-field", "constant", label] - levels["mean-field", "falling", label]
            for label in contributions.ESTIMATORS
        ]
        lines.append(
            "- **The start.** With 6,000 steps instead of 36,000 it decides (the picture): a narrower "
            f"one gains {_range(effects['start'])} nats, whatever the step rule and the estimator. Nats "
            "below the best from the narrow start, with a constant and with a falling step: "
            f"{', '.join(ends)}. From the paper's start so few steps do not arrive, and a falling step "
            f"loses {min(lost):.0f} to {max(lost):.0f} nats."
        )
    return re.sub(r"(?<![\w.])-(?=\d)", "−", "\n".join(lines))


def _below(levels: dict[tuple[str, str, str], float], top: float, label: str) -> list[str]:
    """Nats below the best from the narrow start, at each step rule."""
    ends = (levels.get(("mean-field-narrow", rule, label)) for rule in ("constant", "falling"))
    return ["(not run)" if end is None else f"{top - end:.1f}" for end in ends]


def _nats(gain: Interval | None) -> str:
    if gain is None:
        return "(not run)"
    half = (gain.high - gain.low) / 2
    return f"{gain.middle:+.2f} ± {half:.2f}" if gain.reps > 1 else f"{gain.middle:+.2f}"


def _range(values: list[float]) -> str:
    low, middle, high = min(values), float(np.median(values)), max(values)
    return f"{middle:+.0f} (from {low:+.0f} to {high:+.0f})"
