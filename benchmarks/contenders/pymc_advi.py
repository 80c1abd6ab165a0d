"""PyMC's ADVI. The density enters as a Potential through PyTensor's wrapper of JAX functions."""

import time
from collections.abc import Iterator
from typing import Any

import jax.random as jr
import numpy as np

from .snapshot import Snapshot, diagonal, triangular

PIECE = 1000
SETTINGS = "advi, fullrank_advi with their 10,000 steps, one draw and optimiser"


def advi(target: Any, family: str, rate: None, *, key: Any) -> Iterator[Snapshot]:
    """`pm.fit` as it comes."""
    import pymc as pm
    from pytensor import wrap_jax

    del rate
    method = {"mean-field": "advi", "full-rank": "fullrank_advi"}[family]
    seed = int(jr.randint(key, (), 0, 2**31 - 1))
    began, told, away = time.perf_counter(), [], 0.0

    def tell(approximation: Any, losses: Any, step: int) -> None:
        nonlocal away
        if step % PIECE:
            return
        seconds = time.perf_counter() - began - away
        told.append((seconds, step, *_numbers(family, approximation)))
        away = time.perf_counter() - began - seconds

    log_density = wrap_jax(target.log_density)
    with pm.Model():
        z = pm.Flat("z", shape=target.dim, initval=np.zeros(target.dim))
        pm.Potential("log_density", log_density(z))
        pm.fit(method=method, random_seed=seed, progressbar=False, callbacks=[tell])
    for seconds, step, mean, scale in told:
        kind = diagonal if family == "mean-field" else triangular
        yield Snapshot(seconds, step, kind(mean, scale))


def _numbers(family: str, approximation: Any) -> tuple[np.ndarray, np.ndarray]:
    if family == "mean-field":
        return approximation.mean.eval(), approximation.std.eval()
    return approximation.mean.eval(), np.linalg.cholesky(approximation.cov.eval())
