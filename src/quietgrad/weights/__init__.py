"""Weights of the draws: an estimator that is linear in the per-draw gradients is a weighted mean."""

from .filters import REGISTRY as FILTERS
from .filters import AbstractFilter, GradientDescent, LeastSquares, Ridge
from .folds import REGISTRY as FOLDS
from .folds import AbstractFolds, InSample, KFold, LeaveOneOut
from .kernels import REGISTRY as KERNELS
from .kernels import AbstractKernel, Gaussian, Polynomial
from .stein import Stein
from .uniform import Uniform
from .weights import AbstractWeights

REGISTRY: dict[str, type[AbstractWeights]] = {
    "uniform": Uniform,
    "stein": Stein,
}

__all__ = [
    "FILTERS",
    "FOLDS",
    "KERNELS",
    "REGISTRY",
    "AbstractFilter",
    "AbstractFolds",
    "AbstractKernel",
    "AbstractWeights",
    "Gaussian",
    "GradientDescent",
    "InSample",
    "KFold",
    "LeastSquares",
    "LeaveOneOut",
    "Polynomial",
    "Ridge",
    "Stein",
    "Uniform",
]
