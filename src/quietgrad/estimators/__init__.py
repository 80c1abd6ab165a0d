"""Estimators of the ELBO gradient."""

from .estimator import AbstractEstimator, Cost, Estimate
from .pathwise import Pathwise
from .registry import REGISTRY, estimator

__all__ = ["REGISTRY", "AbstractEstimator", "Cost", "Estimate", "Pathwise", "estimator"]
