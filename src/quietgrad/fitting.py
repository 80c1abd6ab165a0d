"""`fit`: the one call, and the methods behind it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from . import loop
from ._checks import lookup, unknown
from .auto import AutoSettings, Decision, fit_auto
from .estimators import AbstractEstimator
from .families import AbstractFamily
from .results import FitResult
from .saa import SaaSettings, fit_saa
from .targets import Target


def _sgd(target: Target, q: AbstractFamily, **settings: Any) -> FitResult:
    return loop.fit(target, q, **settings)


def _saa(
    target: Target,
    q: AbstractFamily,
    *,
    key: Key[Array, ""],
    batch_size: int | None = None,
    monitor: loop.Monitor | None = None,
    **settings: Any,
) -> FitResult:
    if batch_size is not None:
        raise ValueError("method='saa' fixes its draws and uses all rows; leave batch_size out")
    _check_settings("saa", settings, SaaSettings)
    return fit_saa(target, q, monitor=monitor, settings=SaaSettings(**settings), key=key)


def _auto(
    target: Target,
    q: AbstractFamily,
    *,
    key: Key[Array, ""],
    estimator: AbstractEstimator | str = "auto",
    batch_size: int | None = None,
    monitor: loop.Monitor | None = None,
    replay: tuple[Decision, ...] = (),
    **settings: Any,
) -> FitResult:
    _check_settings("auto", settings, AutoSettings)
    return fit_auto(
        target,
        q,
        estimator=estimator,
        batch_size=batch_size,
        monitor=monitor,
        replay=replay,
        settings=AutoSettings(**settings),
        key=key,
    )


def _check_settings(method: str, given: dict[str, Any], cls: type) -> None:
    accepted = [field.name for field in dataclasses.fields(cls)]
    for name in given:
        if name not in accepted:
            raise ValueError(unknown(f"setting of method {method!r}:", name, accepted))


METHODS: dict[str, Callable[..., FitResult]] = {
    "sgd": _sgd,
    "saa": _saa,
    "auto": _auto,
}


def fit(
    target: Target, q: AbstractFamily, *, method: str = "sgd", key: Key[Array, ""], **settings: Any
) -> FitResult:
    """Maximise the ELBO of `q` against `target`.

    `method="sgd"` takes stochastic gradient steps; its settings are those of `quietgrad.loop.fit`:
    `estimator`, `optimizer`, `steps`, `batch_size`, `evaluate_every`, `evaluation_draws`, `stop`,
    `seconds`, `monitor`, `progress`. `method="saa"` climbs the ELBO at fixed quasi-random draws by
    L-BFGS and polishes with a short stochastic run; its settings are the fields of
    `quietgrad.saa.SaaSettings`.
    `method="auto"` chooses step size, averaging, estimator and the end by itself and can tell why
    (`result.explain()`); its settings are the fields of `quietgrad.auto.AutoSettings`, and
    `replay=result.decisions` repeats the choices of an earlier run.
    """
    loop.check_key(key)
    return lookup(METHODS, method, "method")(target, q, key=key, **settings)
