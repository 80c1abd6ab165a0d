"""Families that draw the globals of a hierarchy first, and its locals given them."""

from .hierarchical import Hierarchical
from .linear import LinearLocals
from .locals import AbstractConditional, Locals
from .nested import Nested, NestedLaplace, without_globals
from .nested_skewed import NestedSkewed

__all__ = [
    "AbstractConditional",
    "Hierarchical",
    "LinearLocals",
    "Locals",
    "Nested",
    "NestedLaplace",
    "NestedSkewed",
    "without_globals",
]
