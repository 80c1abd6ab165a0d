"""Entropy modes: how -log q enters the gradient."""

from .chosen import Chosen
from .closed import Closed
from .mode import AbstractEntropy, Path
from .sampled import Sampled
from .stl import StickTheLanding

REGISTRY: dict[str, type[AbstractEntropy]] = {
    "sampled": Sampled,
    "closed": Closed,
    "stl": StickTheLanding,
}

__all__ = ["REGISTRY", "AbstractEntropy", "Chosen", "Closed", "Path", "Sampled", "StickTheLanding"]
