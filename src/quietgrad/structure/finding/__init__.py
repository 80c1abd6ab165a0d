"""How the structure of a target is found."""

from .find import Found, structure_of

__all__ = ["Found", "structure_of"]
