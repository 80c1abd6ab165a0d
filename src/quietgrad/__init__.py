"""Low-noise gradients for variational inference in JAX.

Names are imported when first used, so that `quietgrad --help` and the report do not wait for jax.
"""

import gc
import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .datasets import tasks
    from .diagnostics.settings import Diagnostics
    from .energy import fit_energy
    from .estimators import Controlled, Estimate, Pathwise, Quiet, ScoreFunction, estimator
    from .estimators.entropy import Closed, Sampled, StickTheLanding
    from .estimators.samplers import Antithetic, Iid, LatinHypercube, Rqmc
    from .estimators.surrogates import QuadCV, Taylor
    from .estimators.weights import Stein, Uniform, stein_weights
    from .evaluation.gradient_noise import gradient_error, gradient_variance, variance_ratio
    from .evaluation.metrics import elbo, elbo_with_error, lppd
    from .families import (
        AffineRealNVP,
        FullRank,
        LowRank,
        MeanField,
        RealNVP,
        SemiImplicit,
        WhitenedRealNVP,
    )
    from .families.bases import Logistic, Normal, StudentT
    from .fitting import fit
    from .fitting.looping import Loop, loop
    from .fitting.many import FitMany, fit_many
    from .methods import Auto, Bam, Saa, Sgd
    from .racing import race
    from .results import FitResult
    from .results.expectations import Expectations, posterior_expectations
    from .results.loading import load
    from .results.refined import Refine, Refined
    from .scale.compilation_cache import keep_compiled
    from .session.history import Plateau, Reached
    from .status import Status
    from .targets import RowBlocks, Target

_HOMES = {
    "families.bases": ["Logistic", "Normal", "StudentT"],
    "scale.compilation_cache": ["keep_compiled"],
    "diagnostics.settings": ["Diagnostics"],
    "energy": ["fit_energy"],
    "estimators.entropy": ["Closed", "Sampled", "StickTheLanding"],
    "estimators": ["Controlled", "Estimate", "Pathwise", "Quiet", "ScoreFunction", "estimator"],
    "results.expectations": ["Expectations", "posterior_expectations"],
    "families": [
        "AffineRealNVP",
        "FullRank",
        "LowRank",
        "MeanField",
        "RealNVP",
        "SemiImplicit",
        "WhitenedRealNVP",
    ],
    "evaluation.gradient_noise": ["gradient_error", "gradient_variance", "variance_ratio"],
    "fitting": ["fit"],
    "session.history": ["Plateau", "Reached"],
    "fitting.many": ["FitMany", "fit_many"],
    "fitting.looping": ["Loop", "loop"],
    "methods": ["Auto", "Bam", "Saa", "Sgd"],
    "evaluation.metrics": ["elbo", "elbo_with_error", "lppd"],
    "racing": ["race"],
    "results": ["FitResult"],
    "results.refined": ["Refine", "Refined"],
    "results.loading": ["load"],
    "status": ["Status"],
    "estimators.samplers": ["Antithetic", "Iid", "LatinHypercube", "Rqmc"],
    "estimators.surrogates": ["QuadCV", "Taylor"],
    "targets": ["RowBlocks", "Target"],
    "estimators.weights": ["Stein", "Uniform", "stein_weights"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AffineRealNVP",
    "Antithetic",
    "Auto",
    "Bam",
    "Closed",
    "Controlled",
    "Diagnostics",
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
    "Refine",
    "Refined",
    "RowBlocks",
    "Rqmc",
    "Saa",
    "Sampled",
    "ScoreFunction",
    "SemiImplicit",
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
    home = "datasets.tasks" if name == "tasks" else _HOME.get(name) or _BEHIND_EXTRAS.get(name)
    if home is not None:
        # Imports leave no garbage, and to look for some among jax's objects takes a tenth of a second.
        collects = gc.isenabled()
        gc.disable()
        try:
            # The first name brings what a fit needs: imported by `qg.fit`, it would be on no clock.
            importlib.import_module(".fitting", __name__)
            module = importlib.import_module(f".{home}", __name__)
        finally:
            if collects:
                gc.enable()
        return module if name == "tasks" else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
