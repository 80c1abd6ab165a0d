"""Part (a): the error of the score against its cost, along the training of a semi-implicit q."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from quietgrad.estimators.scores import (
    ChainMean,
    HmcChain,
    LinearisedImportance,
    SharedImportance,
    SteinChain,
    SteinLinearised,
    SteinShared,
)
from quietgrad.estimators.scores.stein import Weighting
from quietgrad.estimators.weights import Ridge
from quietgrad.families.semi_implicit import Proposal

from .methods import METHODS, member
from .targets import target_of
from .training import train

ESTIMATORS = {
    "UIVI, 5 + 5 states": ChainMean(),
    "UIVI, 5 + 25 states": ChainMean(HmcChain(5, 25, 5)),
    "Stein order 1, states": SteinChain(weighting=Weighting(order=1), all_points=False),
    "Stein order 1, all points": SteinChain(weighting=Weighting(order=1)),
    "Stein order 2, all points": SteinChain(weighting=Weighting(order=2)),
    "control functionals, all points": SteinChain(
        weighting=Weighting(kernel="gaussian", solver=Ridge(1e-2))
    ),
    "Stein order 1, linearised points": SteinLinearised(weighting=Weighting(order=1)),
    "linearised importance, 64 nodes": LinearisedImportance(Proposal()),
    "Stein order 1, 256 shared nodes": SteinShared(256),
    "Stein order 2, 256 shared nodes": SteinShared(256, order=2),
    "shared importance, 256 nodes": SharedImportance(256),
    "shared importance, 4096 nodes": SharedImportance(4096),
}


def rows(name: str, gaussian: Any, spec: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Errors of every estimator at several moments of a training by UIVI + Stein."""
    posterior, target = target_of(name)
    method = METHODS["uivi-stein"]
    q = member(method, posterior.dim, posterior.mixing, gaussian, seed)
    found: list[dict[str, Any]] = []

    def watch(share: float, steps: int, q: Any, state: Any) -> None:
        del state
        for row in errors(q, spec, seed):
            found.append({"target": name, "share": share, "steps": steps, "seed": seed, **row})

    watch(0.0, 0, q, None)
    at = tuple(spec["shares"])
    train(
        method.estimator,
        target,
        q,
        seconds=spec["seconds"],
        rate=spec["rate"],
        seed=seed,
        at=at,
        watch=watch,
    )
    return found


def errors(q: Any, spec: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Squared errors at points of q; the truth is from long chains, and has an error of its own."""
    points = spec["points"]
    e = jr.normal(jr.fold_in(jr.key(99), seed), (points, q.base_dim), q.dtype)
    w, eps = jax.vmap(q.whitened)(e), e[:, q.dim :]
    long = SteinChain(HmcChain(20, spec["long_states"], 5))
    truths = [_run(long, q.generator, w, eps, repeats=1, seed=s)[0][0] for s in (1, 2)]
    truth = 0.5 * (truths[0] + truths[1])
    plain = _run(ChainMean(HmcChain(20, spec["long_states"], 5)), q.generator, w, eps, repeats=1, seed=3)
    uncertain = np.mean((truths[0] - truths[1]) ** 2, axis=1) / 4
    neutral = np.mean((plain[0][0] - truth) ** 2, axis=1)
    size = np.mean(truth**2, axis=1)
    made = []
    for title, score in ESTIMATORS.items():
        values, seconds = _run(score, q.generator, w, eps, repeats=spec["repeats"], seed=4)
        square = np.mean((values - truth[None]) ** 2, axis=(0, 2))
        made.append(
            {
                "estimator": title,
                "median": float(np.median(square)),
                "mean": float(np.mean(square)),
                "size": float(np.median(size)),
                "truth_error": float(np.median(uncertain)),
                "truth_against_plain_chain": float(np.median(neutral)),
                "gradients": score.gradients(q.mixing),
                "cpu_ms": 1e3 * seconds,
            }
        )
    return made


def _run(score: Any, generator: Any, w: Any, eps: Any, *, repeats: int, seed: int) -> tuple[Any, float]:
    """Estimates after the step size has settled, and processor seconds of a call."""
    state, call = score.init(generator), eqx.filter_jit(score)
    key = jr.key(seed)
    if state is not None:
        # A short chain finds the step for a long one.
        short = ChainMean()
        adapt = eqx.filter_jit(short)
        for number in range(60):
            _, state = adapt(generator, w, eps, state, key=jr.fold_in(key, 1000 + number))
    jax.block_until_ready(call(generator, w, eps, state, key=key))
    began = time.process_time()
    values = [
        np.asarray(call(generator, w, eps, state, key=jr.fold_in(key, n))[0]) for n in range(repeats)
    ]
    return np.stack(values), (time.process_time() - began) / repeats


def all_finite(rows: list[dict[str, Any]]) -> bool:
    """Whether every error is a number."""
    return bool(np.all(np.isfinite([row["median"] for row in rows])))
