"""Stein kernels: the Gram matrix of a family of functions of a draw that have mean zero."""

from .gaussian import Gaussian
from .kernel import AbstractKernel, HasColumns
from .polynomial import Polynomial

REGISTRY: dict[str, type[AbstractKernel]] = {
    "polynomial": Polynomial,
    "gaussian": Gaussian,
}

__all__ = ["REGISTRY", "AbstractKernel", "Gaussian", "HasColumns", "Polynomial"]
