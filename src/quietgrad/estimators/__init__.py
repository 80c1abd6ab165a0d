"""Estimators of the ELBO gradient."""

from .controlled import Controlled
from .estimator import AbstractEstimator, Cost, Estimate
from .joint_minibatch import Joint
from .ksivi import Ksivi
from .pathwise import Pathwise
from .quiet import Quiet
from .registry import REGISTRY, estimator, name_of, resolve
from .score_function import ScoreFunction
from .semi_implicit import SemiImplicitPathwise
from .sivi import Sivi

__all__ = [
    "REGISTRY",
    "AbstractEstimator",
    "Controlled",
    "Cost",
    "Estimate",
    "Joint",
    "Ksivi",
    "Pathwise",
    "Quiet",
    "ScoreFunction",
    "SemiImplicitPathwise",
    "Sivi",
    "estimator",
    "name_of",
    "resolve",
]
