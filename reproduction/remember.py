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
    lines = [
        f"- **The step rule.** Adam's step size falling to zero is worth **{told['step']} nats** to "
        "plain"
        " gradients with 10 draws (36,000 steps, three starts), at no cost. At a constant step, "
        "QuadCV gains"
        f" {told['quadcv']}, 50 draws gain {told['fifty']} and ZVCV-GD, the paper's own, "
        f"{told['zvcv']}.",
        "- **The estimator.** With a falling step on both sides, over plain gradients with 10 draws: "
        "QuadCV"
        f" {told['quadcv falling']}, 50 draws {told['fifty falling']}, `quiet` with its 2 draws"
        f" {told['quiet falling']} nats. A step of QuadCV takes {times['quadcv']} times as long, one "
        "with 50"
        f" draws {times['fifty']} times, one of `quiet` {times['quiet']} times (two cores).",
    ]
    rows = contributions.stored()
    effects = contributions.effects(rows)
    if effects["start"]:
        levels = {place: float(np.mean(values)) for place, values in contributions.ends(rows).items()}
        top = contributions.best(rows)
        narrow = []
        for label, name in (
            ("nocv 10", "plain gradients"),
            ("quadcv 10", "QuadCV"),
            ("quiet 2", "`quiet`"),
        ):
            known = [
                f"{top - level:.1f} ({rule})"
                for rule in ("constant", "falling")
                if (level := levels.get(("mean-field-narrow", rule, label))) is not None
            ]
            narrow += [f"{name} {' and '.join(known)}"] if known else []
        lines.append(
            "- **The start.** With 6,000 steps instead of 36,000 it decides (the picture): a narrower "
            "one"
            f" gains {_range(effects['start'])} nats, whatever the rest. From it, runs end so many "
            "nats below"
            f" the best, with a constant and with a falling step: {', '.join(narrow)}."
        )
    return re.sub(r"(?<![\w.])-(?=\d)", "−", "\n".join(lines))


def _nats(gain: Interval | None) -> str:
    if gain is None:
        return "(not run)"
    half = (gain.high - gain.low) / 2
    return f"{gain.middle:+.2f} ± {half:.2f}" if gain.reps > 1 else f"{gain.middle:+.2f}"


def _range(values: list[float]) -> str:
    low, middle, high = min(values), float(np.median(values)), max(values)
    return f"{middle:+.0f} (from {low:+.0f} to {high:+.0f})"
