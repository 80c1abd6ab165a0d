"""Filters: how coefficients are fitted, as a function of the Gram matrix."""

from .filter import AbstractFilter, HasLeaveOneOut
from .gradient_descent import GradientDescent
from .least_squares import LeastSquares
from .ridge import Ridge

REGISTRY: dict[str, type[AbstractFilter]] = {
    "gd": GradientDescent,
    "ridge": Ridge,
    "least-squares": LeastSquares,
}

__all__ = [
    "REGISTRY",
    "AbstractFilter",
    "GradientDescent",
    "HasLeaveOneOut",
    "LeastSquares",
    "Ridge",
]
