"""Moves of chains that sample e^{-E}."""

from .langevin import Langevin
from .mala import Mala
from .move import AbstractMove, Chains, Moved, Recycled, moved, placed, recycled

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
    "Moved",
    "Recycled",
    "moved",
    "placed",
    "recycled",
]
