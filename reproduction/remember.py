"""The three numbers of the README, from the full-batch network with a mean-field Gaussian."""

import numpy as np
from blocks import Results

from quietgrad.report.numbers import nats, number
from quietgrad.study.clock import rounds
from quietgrad.study.summary import Row

PLACE = ("redwine", "mean-field")
ROWS = (
    ("auto", None, "main"),
    ("nocv", 10, "main"),
    ("nocv", 50, "main"),
    ("zvcv-gd", 10, "main"),
    ("quadcv", 10, "main"),
    ("nocv, decaying", None, "decay"),
    ("quiet, decaying", None, "decay"),
)


def numbers(results: Results) -> str:
    """Time to target, what each remedy gains, and what draws cost."""
    rows = [results.row(*PLACE, *key) for key in ROWS]
    known = [row for row in rows if row is not None and row.timed]
    if len(known) < len(rows):
        return "(not measured yet)"
    auto, plain, many, zvcv, quad, falling, quiet = known
    quad_gain, zvcv_gain, gain = (row.elbo - plain.elbo for row in (quad, zvcv, falling))
    quad_cost, many_cost, quiet_cost = (
        _step_ratio(results, *key) for key in (("quadcv", 10), ("nocv", 50), ("quiet, 2 draws", None))
    )
    return "\n".join(
        [
            f"- **{number(auto.seconds_to_target, 2)} s** until `auto` is within 1 nat of the best ELBO"
            f" and stays there; QuadCV with 10 draws needs {_seconds(quad)}. Plain gradients at a"
            f" constant step size end {plain.gap + 1:.1f} nats below the best with 10 draws and"
            f" {many.gap + 1:.1f} with 50, however long they run.",
            f"- **{quad_gain:+.1f} nats** from QuadCV over plain gradients, for {quad_cost:.2f} times"
            f" the time of a step. ZVCV-GD, the paper's own, gives {zvcv_gain:+.2f}. Plain gradients"
            f" with a step size that falls to zero gain {gain:+.1f}, and that costs nothing.",
            f"- **{many_cost:.1f} times** the time of a step for 50 draws instead of 10 on two cores;"
            f" `quiet` with its two draws takes {quiet_cost:.2f} times. With a falling step size it ends"
            f" at {nats(quiet.elbo)} in {number(quiet.seconds, 2)} s, plain gradients with 50 draws at"
            f" {nats(many.elbo)} in {number(many.seconds, 2)} s.",
        ]
    )


def _step_ratio(results: Results, label: str, draws: int | None) -> float:
    """The time of a step over that of NoCV with ten draws, round by round."""
    keys = ((label, draws), ("nocv", 10))
    ours, plain = (rounds(results.records(*PLACE, *key)[0]) for key in keys)
    return float(np.exp(np.mean(np.log(np.divide(ours, plain)))))


def _seconds(row: Row) -> str:
    if row.seconds_to_target is None:
        return f"longer than its {row.steps:,.0f} steps"
    return f"{number(row.seconds_to_target, 2)} s"
