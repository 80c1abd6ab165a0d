"""What every fit has in common: clock, history, the best answer so far, limits, interruption, ending."""

from .checkpoint import checkpoint_of
from .clock import INTERRUPTED, Ended, Interrupts
from .problem import DEFAULT, Callback, Candidate, Evaluation, Moment, Problem
from .recorder import Recorder

__all__ = [
    "DEFAULT",
    "INTERRUPTED",
    "Candidate",
    "Callback",
    "Ended",
    "Evaluation",
    "Interrupts",
    "Moment",
    "Problem",
    "Recorder",
    "checkpoint_of",
]
