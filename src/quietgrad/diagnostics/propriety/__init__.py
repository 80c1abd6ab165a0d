"""Whether a log density has a finite mass: looked at while a fit runs, at its end, and by the verdict.

| file | what it finds |
|---|---|
| `tail` | how a density falls off along one ray, from its values: the rule |
| `rays` | rays from q's center, and the tails along them |
| `coordinates`, `directions` | infinite mass along a coordinate, or between some |
| `spikes` | points towards which a density rises without end |
| `hyperparameters` | hyperparameters without a best value |
| `non_finite` | where a density is not finite, in words |
| `displacement` | where to look first: what has moved, grown or shrunk most since the start |
| `settings` | all numbers, with their reasons |
"""

from .coordinates import unbounded_coordinate
from .directions import flattest, unbounded_direction
from .displacement import displaced, displacement, furthest
from .finding import Finding
from .hyperparameters import unbounded_hyperparameter
from .non_finite import nowhere_finite, partly_finite
from .probe import LogDensityProbe, log_density_probe
from .rays import Ray, slow_tails
from .settings import DEFAULT, Propriety
from .spikes import spike
from .tail import Tail

__all__ = [
    "DEFAULT",
    "Finding",
    "LogDensityProbe",
    "Propriety",
    "Ray",
    "Tail",
    "displaced",
    "displacement",
    "flattest",
    "furthest",
    "log_density_probe",
    "nowhere_finite",
    "partly_finite",
    "slow_tails",
    "spike",
    "unbounded_coordinate",
    "unbounded_direction",
    "unbounded_hyperparameter",
]
