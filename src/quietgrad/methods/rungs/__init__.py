"""Rungs of the ladder of families: each is a kind of q to try where a simpler one is not enough."""

from .evidence import Evidence
from .flow import FlowRung
from .full_rank import FullRankRung
from .low_rank import LowRankRung
from .rung import AbstractRung

# The cheapest first.
RUNGS: tuple[AbstractRung, ...] = (FullRankRung(), FlowRung(), LowRankRung())

__all__ = ["RUNGS", "AbstractRung", "Evidence", "FlowRung", "FullRankRung", "LowRankRung"]
