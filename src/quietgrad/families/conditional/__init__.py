"""Families that draw the globals of a hierarchy first, and its locals given them."""

from .at_points import AtPoints, at_points, recentred, skewed_locals, skewness
from .hierarchical import Hierarchical
from .linear import LinearLocals
from .locals import AbstractConditional, Locals
from .nested import Nested
from .nested_laplace import NestedLaplace, without_globals
from .nested_skewed import NestedSkewed

__all__ = [
    "AbstractConditional",
    "AtPoints",
    "Hierarchical",
    "LinearLocals",
    "Locals",
    "Nested",
    "NestedLaplace",
    "NestedSkewed",
    "at_points",
    "recentred",
    "skewed_locals",
    "skewness",
    "without_globals",
]
