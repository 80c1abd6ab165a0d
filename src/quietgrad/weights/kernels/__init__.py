"""Stein kernels: the Gram matrix of a family of zero-mean functions of the base draw."""

from .gaussian import Gaussian
from .kernel import AbstractKernel
from .polynomial import Polynomial

REGISTRY: dict[str, type[AbstractKernel]] = {
    "polynomial": Polynomial,
    "gaussian": Gaussian,
}

__all__ = ["REGISTRY", "AbstractKernel", "Gaussian", "Polynomial"]
