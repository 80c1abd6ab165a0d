"""Low-noise gradients for variational inference in JAX.

Names are imported when first used, so that `quietgrad --help` and the report do not wait for jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import tasks
    from .bases import Logistic, Normal, StudentT
    from .compilation_cache import keep_compiled
    from .energy import fit_energy
    from .entropy import Closed, Sampled, StickTheLanding
    from .estimators import Controlled, Estimate, Pathwise, Quiet, ScoreFunction, estimator
    from .expectations import Expectations, posterior_expectations
    from .families import AffineRealNVP, FullRank, LowRank, MeanField, RealNVP, WhitenedRealNVP
    from .fitting import fit
    from .gradient_noise import gradient_error, gradient_variance, variance_ratio
    from .history import Plateau, Reached
    from .loading import load
    from .looping import Loop, loop
    from .many import FitMany, fit_many
    from .methods import Auto, Bam, Saa, Sgd
    from .metrics import elbo, elbo_with_error, lppd
    from .racing import race
    from .results import FitResult
    from .samplers import Antithetic, Iid, LatinHypercube, Rqmc
    from .status import Status
    from .surrogates import QuadCV, Taylor
    from .targets import RowBlocks, Target
    from .weights import Stein, Uniform, stein_weights

_HOMES = {
    "bases": ["Logistic", "Normal", "StudentT"],
    "compilation_cache": ["keep_compiled"],
    "energy": ["fit_energy"],
    "entropy": ["Closed", "Sampled", "StickTheLanding"],
    "estimators": ["Controlled", "Estimate", "Pathwise", "Quiet", "ScoreFunction", "estimator"],
    "expectations": ["Expectations", "posterior_expectations"],
    "families": [
        "AffineRealNVP",
        "FullRank",
        "LowRank",
        "MeanField",
        "RealNVP",
        "WhitenedRealNVP",
    ],
    "gradient_noise": ["gradient_error", "gradient_variance", "variance_ratio"],
    "fitting": ["fit"],
    "history": ["Plateau", "Reached"],
    "many": ["FitMany", "fit_many"],
    "loading": ["load"],
    "looping": ["Loop", "loop"],
    "methods": ["Auto", "Bam", "Saa", "Sgd"],
    "metrics": ["elbo", "elbo_with_error", "lppd"],
    "racing": ["race"],
    "results": ["FitResult"],
    "status": ["Status"],
    "samplers": ["Antithetic", "Iid", "LatinHypercube", "Rqmc"],
    "surrogates": ["QuadCV", "Taylor"],
    "targets": ["RowBlocks", "Target"],
    "weights": ["Stein", "Uniform", "stein_weights"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AffineRealNVP",
    "Antithetic",
    "Auto",
    "Bam",
    "Closed",
    "Controlled",
    "Estimate",
    "Expectations",
    "FitMany",
    "FitResult",
    "FullRank",
    "Iid",
    "LatinHypercube",
    "Logistic",
    "Loop",
    "LowRank",
    "MeanField",
    "Normal",
    "Pathwise",
    "Plateau",
    "QuadCV",
    "Quiet",
    "Reached",
    "RealNVP",
    "RowBlocks",
    "Rqmc",
    "Saa",
    "Sampled",
    "ScoreFunction",
    "Sgd",
    "Status",
    "Stein",
    "StickTheLanding",
    "StudentT",
    "Target",
    "Taylor",
    "Uniform",
    "WhitenedRealNVP",
    "__version__",
    "elbo",
    "elbo_with_error",
    "estimator",
    "fit",
    "fit_energy",
    "fit_many",
    "gradient_error",
    "gradient_variance",
    "keep_compiled",
    "load",
    "loop",
    "lppd",
    "posterior_expectations",
    "race",
    "stein_weights",
    "tasks",
    "variance_ratio",
]


# Not among the names that `import *` brings, because they need an extra.
_BEHIND_EXTRAS = {"QuietELBO": "adapters.numpyro"}


def __getattr__(name: str) -> Any:
    home = "tasks" if name == "tasks" else _HOME.get(name) or _BEHIND_EXTRAS.get(name)
    if home is not None:
        # The first name brings what a fit needs: imported by `qg.fit`, it would be a wait on no clock.
        importlib.import_module(".fitting", __name__)
        module = importlib.import_module(f".{home}", __name__)
        return module if name == "tasks" else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
