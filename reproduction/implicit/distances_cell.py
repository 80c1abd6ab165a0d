"""Part (b): how near the draws of each method are to the posterior's, at equal processor seconds."""

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

import quietgrad as qg

from .distances import distances
from .methods import METHODS, member
from .targets import REFERENCE, reference, target_of
from .training import train

RATE = 0.003


def tuning(
    name: str, method: str, gaussian: Any, spec: dict[str, Any], cache: Path
) -> list[dict[str, Any]]:
    """Trainings of the tuning seeds at every rate, the same rates for all methods."""
    found = []
    for rate in spec["tuning"]["rates"]:
        for seed in spec["tuning"]["seeds"]:
            found += _trained(name, method, gaussian, spec | {"shares": [1.0]}, seed, rate, cache)
    return found


def tuned(rows: list[dict[str, Any]]) -> float:
    """The rate with the least distance, mean over the tuning seeds; `RATE` without any."""
    reached: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        reached[row["rate"]].append(row["sliced"] if np.isfinite(row["sliced"]) else np.inf)
    return min(reached, key=lambda rate: np.mean(reached[rate])) if rows else RATE


def rows(
    name: str,
    method: str,
    gaussian: Any,
    spec: dict[str, Any],
    seed: int,
    tried: list[dict[str, Any]],
    cache: Path,
) -> list[dict[str, Any]]:
    """Distances at several moments of one training, or at the end of a fit."""
    if method in METHODS:
        return _trained(name, method, gaussian, spec, seed, tuned(tried), cache)
    began = time.process_time()
    result = qg.fit(target_of(name)[1], method, key=jr.key(seed))
    took = time.process_time() - began
    draws = np.asarray(result.sample(jr.key(seed + 50), REFERENCE))
    ends = {"seconds": took, "share": 1.0, "steps": result.steps}
    found = distances(draws, reference(name, cache))
    return [{"target": name, "method": method, "seed": seed, **ends, **found}]


def _trained(
    name: str,
    method: str,
    gaussian: Any,
    spec: dict[str, Any],
    seed: int,
    rate: float,
    cache: Path,
) -> list[dict[str, Any]]:
    (posterior, target), truth = target_of(name), reference(name, cache)
    chosen, found = METHODS[method], []
    q = member(chosen, posterior.dim, posterior.mixing, gaussian, seed)
    seconds = spec["seconds"]

    def watch(share: float, steps: int, q: Any, state: Any) -> None:
        del state
        draws = np.asarray(_sampled(q, jr.key(seed + 50)))
        settings = {"target": name, "method": method, "seed": seed, "rate": rate}
        ends = {"seconds": share * seconds, "share": share, "steps": steps}
        found.append(settings | ends | distances(draws, truth))

    at = tuple(spec["shares"])
    train(chosen.estimator, target, q, seconds=seconds, rate=rate, seed=seed, at=at, watch=watch)
    return found


@eqx.filter_jit
def _sampled(q: Any, key: Any) -> Any:
    return q.sample(key, REFERENCE)


def floor(name: str, cache: Path) -> dict[str, Any]:
    """The distance between the two halves of the reference: what no method can beat."""
    truth = reference(name, cache)
    half = len(truth) // 2
    found = distances(truth[half:], truth[:half])
    return {"target": name, "method": "reference", "seed": 0, "share": 1.0, "seconds": 0.0, **found}
