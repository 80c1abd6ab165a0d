"""`fit`: the one call, and the methods behind it."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from . import loop
from ._checks import lookup, unknown
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
    **settings: Any,
) -> FitResult:
    if batch_size is not None:
        raise ValueError("method='saa' fixes its draws and uses all rows; leave batch_size out")
    accepted = SaaSettings.__dataclass_fields__
    for name in settings:
        if name not in accepted:
            raise ValueError(unknown("setting of method 'saa':", name, accepted))
    return fit_saa(target, q, key=key, settings=SaaSettings(**settings))


METHODS: dict[str, Callable[..., FitResult]] = {
    "sgd": _sgd,
    "saa": _saa,
}


def fit(
    target: Target, q: AbstractFamily, *, method: str = "sgd", key: Key[Array, ""], **settings: Any
) -> FitResult:
    """Maximise the ELBO of `q` against `target`.

    `method="sgd"` takes stochastic gradient steps; its settings are those of `quietgrad.loop.fit`:
    `estimator`, `optimizer`, `steps`, `batch_size`, `evaluate_every`, `evaluation_draws`, `stop`,
    `seconds`, `monitor`, `progress`. `method="saa"` climbs the ELBO at fixed quasi-random draws by L-BFGS
    and polishes with a short stochastic run; its settings are the fields of `quietgrad.saa.SaaSettings`.
    """
    loop.check_key(key)
    return lookup(METHODS, method, "method")(target, q, key=key, **settings)
