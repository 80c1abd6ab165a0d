"""How the structure of a target is found."""

from .find import Found, blocks_of_plates, has, structure_of

__all__ = ["Found", "blocks_of_plates", "has", "structure_of"]
