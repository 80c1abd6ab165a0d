"""Rungs of the ladder of families: each is a kind of q to try where a simpler one is not enough."""

from .curved import CurvedRung
from .evidence import Evidence
from .flow import FlowRung
from .full_rank import FullRankRung
from .low_rank import LowRankRung
from .mixture import MixtureRung
from .rung import AbstractRung
from .structured import HierarchyRung, StructuredRung

# The cheapest first. Mixtures of several modes come before a bend, those of parts of one mode after it.
RUNGS: tuple[AbstractRung, ...] = (
    FullRankRung(),
    MixtureRung(most_dim=0),
    CurvedRung(),
    MixtureRung(),
    HierarchyRung(),
    StructuredRung(),
    FlowRung(),
    LowRankRung(),
)

__all__ = [
    "RUNGS",
    "AbstractRung",
    "CurvedRung",
    "Evidence",
    "FlowRung",
    "FullRankRung",
    "LowRankRung",
    "MixtureRung",
    "HierarchyRung",
    "StructuredRung",
]
