"""The race: which method and estimator reach the answer first on this model and machine, and why."""

from .entrants import Entrant, entrants_for
from .race import race
from .result import COLUMNS, Lane, RaceResult

__all__ = ["COLUMNS", "Entrant", "Lane", "RaceResult", "entrants_for", "race"]
