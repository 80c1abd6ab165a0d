"""Weights of the draws: an estimator that is linear in the per-draw gradients is a weighted mean."""

from .folds import REGISTRY as FOLDS
from .folds import AbstractFolds, InSample, KFold, LeaveOneOut
from .kernels import REGISTRY as KERNELS
from .kernels import AbstractKernel, Gaussian, HasColumns, Polynomial
from .solvers import REGISTRY as GRAM_SOLVERS
from .solvers import AbstractGramSolver, GradientDescent, LeastSquares, Ridge
from .stein import Stein
from .stein_weights import stein_weights
from .weights import AbstractWeights, Uniform

REGISTRY: dict[str, type[AbstractWeights]] = {
    "uniform": Uniform,
    "stein": Stein,
}

__all__ = [
    "GRAM_SOLVERS",
    "FOLDS",
    "KERNELS",
    "REGISTRY",
    "AbstractGramSolver",
    "AbstractFolds",
    "AbstractKernel",
    "AbstractWeights",
    "Gaussian",
    "GradientDescent",
    "HasColumns",
    "InSample",
    "KFold",
    "LeastSquares",
    "LeaveOneOut",
    "Polynomial",
    "Ridge",
    "Stein",
    "Uniform",
    "stein_weights",
]
