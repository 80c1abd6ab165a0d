"""The last stage of an automatic fit: annealed rounds until nothing promises much, and how that ends."""

import math

from ...points import Points
from ...recorder import Answer
from ...status import Status
from ..method import Ending
from .anneal import anneal
from .curvature import promise, what_is_left
from .stage import Runner

# How often annealing goes on when a Newton step promises more than the last round gained.
SECOND_THOUGHTS = 3
WALL = (
    "steps ran into points next to the answer where the log density is NaN or infinite, so the answer "
    "is not the best one; if the density is zero in part of the space, map that part away (log, logit)"
)


def finish(
    run: Runner,
    answer: Answer,
    rates: tuple[float, float],
    lengths: tuple[int, int],
    points: Points | None = None,
) -> Ending:
    """Rounds of `rates` until neither they nor a Newton step promise much.

    `lengths` are the steps of the first round, and those that all may take.
    """
    at, end, left = run.begin(answer, "anneal"), "out of steps", None
    length, most_steps = lengths
    for _ in range(SECOND_THOUGHTS):
        at, end = anneal(run, at, rates, length, most_steps, gain=run.gain)
        left = what_is_left(run, at.answer.q, points) if end == "rested" else None
        if end != "rested" or left is None or left.nats - 2 * left.error < run.gain:
            break
        length *= 4
    if end == "wall":
        return Status.NON_FINITE, WALL
    if end == "lost":
        return Status.STALLED, "steps of every size lost against the answer before them"
    if end == "out of steps":
        return Status.BUDGET, _out_of_steps(run, at.step)
    if left is not None and not left.nats - 2 * left.error < run.gain:
        ridge = ": a slow ridge" if math.isfinite(left.nats) else ""
        return Status.BUDGET, f"rounds of steps gain little, but {promise(left)}{ridge}"
    return Status.CONVERGED, "the last round of steps gained too little to be worth another"


def _out_of_steps(run: Runner, steps: int) -> str:
    hint = f"the ELBO was still rising, or too noisy to tell, after {steps:,} steps; give more steps"
    return hint if run.problem.batch_size is None else f"{hint}, or a larger batch_size"
