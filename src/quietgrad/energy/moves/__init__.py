"""Moves of chains that sample e^{-E}."""

from .langevin import Langevin
from .mala import Mala
from .move import AbstractMove, Chains, Recycled, moved, placed, recycled

REGISTRY: dict[str, type[AbstractMove]] = {
    "mala": Mala,
    "langevin": Langevin,
}

__all__ = [
    "REGISTRY",
    "AbstractMove",
    "Chains",
    "Langevin",
    "Mala",
    "Recycled",
    "moved",
    "placed",
    "recycled",
]
