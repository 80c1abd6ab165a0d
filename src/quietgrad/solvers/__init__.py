"""Ways to better members of a family, one step at a time, and the loop that drives them."""

from .annealed import LOST, Annealed
from .bam import BatchAndMatch
from .block_newton import BlockNewton
from .driver import EXHAUSTED, STATIONARY, Run, Stop, drive
from .fixed_draws import FixedDraws
from .mixture import MixtureNewton, MixtureState
from .mode import ModeSearch
from .nested import NestedGlobals
from .newton import Newton, NewtonState
from .solver import AbstractSolver, Feedback, Step

__all__ = [
    "EXHAUSTED",
    "LOST",
    "STATIONARY",
    "AbstractSolver",
    "Annealed",
    "BatchAndMatch",
    "BlockNewton",
    "Feedback",
    "FixedDraws",
    "MixtureNewton",
    "MixtureState",
    "ModeSearch",
    "NestedGlobals",
    "Newton",
    "NewtonState",
    "Run",
    "Step",
    "Stop",
    "drive",
]
