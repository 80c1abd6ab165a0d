"""Weights of the draws: an estimator that is linear in the per-draw gradients is a weighted mean."""

from .uniform import Uniform
from .weights import AbstractWeights

REGISTRY: dict[str, type[AbstractWeights]] = {
    "uniform": Uniform,
}

__all__ = ["REGISTRY", "AbstractWeights", "Uniform"]
