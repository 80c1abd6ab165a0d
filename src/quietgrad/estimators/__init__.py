"""Estimators of the ELBO gradient."""

from .controlled import Controlled
from .estimator import AbstractEstimator, Cost, Estimate
from .joint_minibatch import Joint
from .names import name_of
from .pathwise import Pathwise
from .quiet import Quiet
from .registry import REGISTRY, estimator, resolve
from .score_function import ScoreFunction

__all__ = [
    "REGISTRY",
    "AbstractEstimator",
    "Controlled",
    "Cost",
    "Estimate",
    "Joint",
    "Pathwise",
    "Quiet",
    "ScoreFunction",
    "estimator",
    "name_of",
    "resolve",
]
