"""quietgrad as its users call it."""

import time
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import optax

import quietgrad as qg

from .snapshot import Snapshot, diagonal, low_rank, triangular

SETTINGS = "estimator quiet, Adam, 10,000 steps"


def auto(target: qg.Target, family: str, rate: None, *, key: Any) -> Iterator[Snapshot]:
    """`qg.fit(target, family, key=key)`; the low-rank family has rank 5."""
    del rate
    yield from _snapshots(target, family, "auto", key)


def quiet_steps(target: qg.Target, family: str, rate: float, *, key: Any) -> Iterator[Snapshot]:
    """Plain stochastic steps, for their cost."""
    yield from _snapshots(target, family, qg.Sgd("quiet", optax.adam(rate)), key)


def _snapshots(target: qg.Target, family: str, method: Any, key: Any) -> Iterator[Snapshot]:
    began, told = time.perf_counter(), []

    def tell(moment: Any) -> None:
        told.append((time.perf_counter() - began, moment.step, moment.q))

    result = qg.fit(target, family, method=method, callback=tell, progress=False, key=key)
    told.append((time.perf_counter() - began, result.steps, result.q))
    for seconds, steps, q in told:
        yield Snapshot(seconds, steps, _draw(q))


def _draw(q: Any) -> Any:
    if isinstance(q, qg.MeanField):
        return diagonal(q.loc, jnp.exp(q.log_std))
    if isinstance(q, qg.LowRank):
        return low_rank(q.loc, q.factor.T, jnp.exp(2 * q.log_std))
    return triangular(q.loc, q.scale())
