"""Solvers: how coefficients are fitted, as a function of the Gram matrix alone."""

from .gradient_descent import GradientDescent
from .least_squares import LeastSquares
from .ridge import Ridge
from .solver import AbstractGramSolver, HasLeaveOneOut

REGISTRY: dict[str, type[AbstractGramSolver]] = {
    "gd": GradientDescent,
    "ridge": Ridge,
    "least-squares": LeastSquares,
}

__all__ = [
    "REGISTRY",
    "AbstractGramSolver",
    "GradientDescent",
    "HasLeaveOneOut",
    "LeastSquares",
    "Ridge",
]
