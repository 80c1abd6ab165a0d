"""The race: which method and estimator reach the answer first on this model and machine, and why."""

from .entrants import Entrant, entrants_for
from .race import race
from .result import Lane, RaceResult

__all__ = ["Entrant", "Lane", "RaceResult", "entrants_for", "race"]
