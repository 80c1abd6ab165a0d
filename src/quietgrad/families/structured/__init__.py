"""Gaussians with the structure of a hierarchy or of a state space, in O(n)."""

from .arrowhead import Arrowhead
from .chain import Chain
from .gaussian import AbstractStructured

__all__ = ["AbstractStructured", "Arrowhead", "Chain"]
