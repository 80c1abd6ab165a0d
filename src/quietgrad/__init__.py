"""Low-noise gradients for variational inference in JAX.

Names are imported when first used, so that `quietgrad --help` and the report do not wait for jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import tasks
    from .bases import Logistic, Normal, StudentT
    from .entropy import Closed, Sampled, StickTheLanding
    from .estimators import Estimate, Pathwise, estimator
    from .families import AffineRealNVP, FullRank, LowRank, MeanField, RealNVP
    from .gradient_noise import gradient_error, gradient_variance, variance_ratio
    from .loop import fit
    from .metrics import elbo, elbo_with_error, lppd
    from .results import FitResult, Plateau, Status
    from .samplers import Antithetic, Iid
    from .targets import Target
    from .weights import Uniform

_HOMES = {
    "bases": ["Logistic", "Normal", "StudentT"],
    "entropy": ["Closed", "Sampled", "StickTheLanding"],
    "estimators": ["Estimate", "Pathwise", "estimator"],
    "families": ["AffineRealNVP", "FullRank", "LowRank", "MeanField", "RealNVP"],
    "gradient_noise": ["gradient_error", "gradient_variance", "variance_ratio"],
    "loop": ["fit"],
    "metrics": ["elbo", "elbo_with_error", "lppd"],
    "results": ["FitResult", "Plateau", "Status"],
    "samplers": ["Antithetic", "Iid"],
    "targets": ["Target"],
    "weights": ["Uniform"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AffineRealNVP",
    "Antithetic",
    "Closed",
    "Estimate",
    "FitResult",
    "FullRank",
    "Iid",
    "Logistic",
    "LowRank",
    "MeanField",
    "Normal",
    "Pathwise",
    "Plateau",
    "RealNVP",
    "Sampled",
    "Status",
    "StickTheLanding",
    "StudentT",
    "Target",
    "Uniform",
    "__version__",
    "elbo",
    "elbo_with_error",
    "estimator",
    "fit",
    "gradient_error",
    "gradient_variance",
    "lppd",
    "tasks",
    "variance_ratio",
]


def __getattr__(name: str) -> Any:
    if name == "tasks":
        return importlib.import_module(".tasks", __name__)
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
