"""The estimators by name."""

from collections.abc import Callable

from . import presets
from .estimator import AbstractEstimator

REGISTRY: dict[str, Callable[..., AbstractEstimator]] = {
    "nocv": presets.nocv,
    "stl": presets.stl,
    "antithetic": presets.antithetic,
    "rqmc": presets.rqmc,
    "quiet": presets.quiet,
    "quiet-stein": presets.quiet_stein,
    "zvcv-gd": presets.zvcv_gd,
    "zvcv": presets.zvcv,
    "quadcv": presets.quadcv,
    "quadcv-fast": presets.quadcv_fast,
    "taylor": presets.taylor,
    "joint": presets.joint,
    "ensemble": presets.ensemble,
    "score": presets.score,
    "score-loo": presets.score_loo,
    "score-stein": presets.score_stein,
    "sivi": presets.sivi,
    "uivi": presets.uivi,
    "uivi-stein": presets.uivi_stein,
    "ksivi": presets.ksivi,
    "zvcv-gd-literal": presets.zvcv_gd_literal,
    "quadcv-literal": presets.quadcv_literal,
}
