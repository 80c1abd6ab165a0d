"""`fit`: the one call, and the methods behind it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.random as jr
from jaxtyping import Array, Key

from . import loop
from ._checks import lookup, unknown, whole
from .auto import AutoSettings, Decision, Switching, cheapest, fit_auto
from .estimators import AbstractEstimator
from .families import AbstractFamily
from .results import FitResult
from .saa import SaaSettings, fit_saa
from .targets import Target


def _sgd(
    target: Target,
    q: AbstractFamily,
    *,
    estimator: AbstractEstimator | str = "nocv",
    by_clock: bool = True,
    key: Key[Array, ""],
    **settings: Any,
) -> FitResult:
    if estimator != "auto":
        return loop.fit(target, q, estimator=estimator, key=key, **settings)
    steps = whole(settings.get("steps", loop.STEPS), "steps", least=1)
    batch_size = settings.get("batch_size")
    watch = jr.fold_in(key, 2**31)
    switch = Switching(target, steps=steps, batch_size=batch_size, by_clock=by_clock, key=watch)
    return loop.fit(target, q, estimator=cheapest(q), switch=switch, key=key, **settings)


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
    `seconds`, `monitor`, `progress`. `estimator="auto"` starts with the cheapest quiet one and changes
    when noise dominates and another has less variance x cost (`by_clock=False`: in gradient evaluations,
    so that a run can be repeated exactly).
    `method="saa"` climbs the ELBO at fixed quasi-random draws by L-BFGS and polishes with a short
    stochastic run; its settings are `monitor` and the fields of `quietgrad.saa.SaaSettings`.
    `method="auto"` chooses step size, start, estimator and the end by itself and can tell why
    (`result.explain()`); its settings are `estimator` (to keep one), `batch_size`, `monitor` and the
    fields of `quietgrad.auto.AutoSettings`, and `replay=result.decisions` repeats the choices of an
    earlier run.
    """
    loop.check_key(key)
    return lookup(METHODS, method, "method")(target, q, key=key, **settings)
