"""Moves of chains that sample e^{-E}."""

from .langevin import Langevin
from .mala import Mala
from .move import AbstractMove, Chains, moved, placed

REGISTRY: dict[str, type[AbstractMove]] = {
    "mala": Mala,
    "langevin": Langevin,
}

__all__ = ["REGISTRY", "AbstractMove", "Chains", "Langevin", "Mala", "moved", "placed"]
