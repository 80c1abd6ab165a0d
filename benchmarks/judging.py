"""What time_to_target.py measures of a run: when it was how high, judged by draws that none has seen."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from candidates import BASELINES, CANDIDATES

import quietgrad as qg
from quietgrad.metrics import elbo_terms
from quietgrad.samplers import Rqmc

# Draws that judge a run on its way, and those that judge its end.
JUDGE_DRAWS, FINAL_DRAWS = 1024, 16384
MARGIN = 1.0
NEAR = 20.0


def judge_of(
    task: qg.tasks.Task, q: Any, key: Any, draws: int = JUDGE_DRAWS
) -> Callable[..., dict[str, float]]:
    """The ELBO on draws that no candidate has seen, the same for all; spread ones, for less error."""
    sampler, shape = Rqmc(), (draws, q.base_dim)
    e = sampler.draw(sampler.init(*shape), q.base, shape, q.dtype, key=key)

    def judge(q: Any, state: Any, step: int) -> dict[str, float]:
        del state, step
        return {"judged": float(jnp.mean(elbo_terms(task.train, q, e[:, : q.base_dim])))}

    return judge


def records(history: dict[str, np.ndarray], error: float) -> dict[str, list[float]]:
    """When a run was higher than ever before, within `NEAR` nats of its best, and its end."""
    judged = np.where(np.isfinite(history["judged"]), history["judged"], -np.inf)
    judged = judged - (error if math.isfinite(error) else 0.0)
    best = np.maximum.accumulate(judged)
    new = np.diff(best, prepend=-np.inf) > 0
    new &= best > best[-1] - NEAR
    new[-1] = True
    names = {"steps": "step", "seconds": "seconds", "judged": "judged"}
    columns = {**history, "judged": judged}
    return {name: np.round(columns[column][new], 4).tolist() for name, column in names.items()}


def seconds_to(row: dict[str, Any], mark: float) -> float:
    """When a run was first at the mark; its whole budget if never."""
    there = [s for s, elbo in zip(row["seconds"], row["judged"], strict=True) if elbo >= mark]
    return there[0] if there else row["budget"]


def highest(rows: list[dict[str, Any]]) -> float:
    """The best ELBO that a run ended with."""
    return max(row["elbo"] for row in rows if math.isfinite(row["elbo"]))


def _or_worst(elbo: float) -> float:
    return elbo if math.isfinite(elbo) else -math.inf


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over starts for each task, family and candidate."""
    out = []
    for task, family in dict.fromkeys((row["task"], row["family"]) for row in rows):
        own = [row for row in rows if (row["task"], row["family"]) == (task, family)]
        mark = highest(own) - MARGIN
        by_name = {
            name: [row for row in own if row["candidate"] == name]
            for name in CANDIDATES
            if any(row["candidate"] == name for row in own)
        }
        times = {
            n: statistics.median(seconds_to(r, mark) for r in group) for n, group in by_name.items()
        }
        arrived = {n: sum(seconds_to(r, mark) < r["budget"] for r in g) for n, g in by_name.items()}
        baseline = min((times[name] for name in BASELINES if name in times), default=math.nan)
        for name, group in by_name.items():
            out.append(
                {
                    "task": task,
                    "family": family,
                    "candidate": name,
                    "mark": mark,
                    "seconds": times[name],
                    "range": [f(seconds_to(r, mark) for r in group) for f in (min, max)],
                    "arrived": f"{arrived[name]}/{len(group)}",
                    "elbo": statistics.median(_or_worst(row["elbo"]) for row in group),
                    "sooner": baseline / times[name] if times[name] > 0 else math.nan,
                }
            )
    return out
