"""Part (b): how near the draws of each method are to the posterior's, at equal processor seconds."""

import time
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


def rows(
    name: str, method: str, gaussian: Any, spec: dict[str, Any], seed: int, cache: Path
) -> list[dict[str, Any]]:
    """Distances at several moments of one training, or at the end of a fit."""
    (posterior, target), truth = target_of(name), reference(name, cache)
    if method not in METHODS:
        began = time.process_time()
        result = qg.fit(target, method, key=jr.key(seed))
        took = time.process_time() - began
        draws = np.asarray(result.sample(jr.key(seed + 50), REFERENCE))
        ends = {"seconds": took, "share": 1.0, "steps": result.steps}
        return [{"target": name, "method": method, "seed": seed, **ends, **distances(draws, truth)}]
    chosen, found = METHODS[method], []
    q = member(chosen, posterior.dim, posterior.mixing, gaussian, seed)
    seconds = spec["seconds"]

    def watch(share: float, steps: int, q: Any, state: Any) -> None:
        del state
        draws = np.asarray(_sampled(q, jr.key(seed + 50)))
        ends = {"seconds": share * seconds, "share": share, "steps": steps}
        found.append({"target": name, "method": method, "seed": seed, **ends, **distances(draws, truth)})

    at = tuple(spec["shares"])
    train(
        chosen.estimator,
        target,
        q,
        seconds=seconds,
        rate=chosen.pace * spec["rate"],
        seed=seed,
        at=at,
        watch=watch,
    )
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
