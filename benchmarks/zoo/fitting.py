"""Fits of a zoo's model by this library: what came out, how long it took, and what it says of itself."""

import time
from typing import Any

import jax
import jax.random as jr
import numpy as np

import quietgrad as qg
from quietgrad.families.family import HasMoments

from .judging import CORRECTED, DO_NOT_TRUST, TRUST, errors
from .model import Model

# Draws of a family whose moments are estimated, so often, or until every sd is known to `KNOWN`.
DRAWS, MOST, KNOWN = 20_000, 100, 0.03


def fit(model: Model, reference: dict[str, Any], tool: str, seed: int) -> dict[str, Any]:
    """One fit with its errors, times and verdict."""
    family, method = ("full-rank", "bam") if tool == "bam" else (tool, "auto")
    began = time.perf_counter()
    result = qg.fit(model.target, family, method=method, progress=False, key=jr.key(seed))
    seconds = time.perf_counter() - began
    mean, std = moments(result.q, jr.key(1000 + seed))
    row = {
        "elbo": float(result.elbo),
        "elbo_error": float(result.elbo_error),
        "status": str(result.status),
        "hint": result.hint,
        "fitted": type(result.q).__name__,
        "seconds": round(seconds, 2),
        **errors(reference, mean, std),
    }
    return row | _verdict(result, reference, seed)


def moments(q: Any, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a fitted family."""
    if isinstance(q, HasMoments):
        return np.asarray(q.mean()), np.sqrt(np.asarray(q.variance()))
    means: list[np.ndarray] = []
    squares: list[np.ndarray] = []
    for number in range(MOST):
        z = np.asarray(q.sample(jr.fold_in(key, number), DRAWS), float)
        means.append(z.mean(axis=0))
        squares.append((z**2).mean(axis=0))
        mean, square = np.mean(means, axis=0), np.mean(squares, axis=0)
        if number > 3 and np.all(_error(squares) < 2 * KNOWN * (square - mean**2)):
            break
    return mean, np.sqrt(square - mean**2)


def _error(of: list[np.ndarray]) -> np.ndarray:
    """The standard error of an average over runs. An sd has half the relative error of a square."""
    return np.std(of, axis=0, ddof=1) / np.sqrt(len(of))


def _verdict(result: Any, reference: dict[str, Any], seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        found = result.diagnose()
    except Exception as error:
        # A verdict that fails is no verdict: what a user then knows is the status.
        verdict = TRUST if str(result.status) == "converged" else DO_NOT_TRUST
        words = f"{type(error).__name__}: {error}"[:300]
        return {"verdict": verdict, "judged_by": "status", "fault": words, "corrected_error": None}
    row = {
        "verdict": str(found.verdict),
        "judged_by": "diagnose",
        "reasons": list(found.reasons),
        "advice": list(found.advice),
        "khat": float(found.khat),
        "corrected_error": None,
        "gradients": found.gradients,
        "verdict_seconds": round(time.perf_counter() - began, 2),
    }
    if row["verdict"] == CORRECTED:
        points = np.asarray(result.posterior(jr.key(2000 + seed), 4000).points)
        after = errors(reference, points.mean(axis=0), points.std(axis=0))
        row |= {f"corrected_{name.removeprefix('mean_')}": value for name, value in after.items()}
    return row
