"""Whether a log density has a finite mass: looked at while a fit runs, at its end, and by the verdict.

| file | what it finds |
|---|---|
| `probe` | the log density at points that the host chooses |
| `rays` | rays from q's center, and how the density falls off along one: the rule |
| `findings` | infinite mass, spikes, hyperparameters without a best value, values that are not finite |
| `settings` | all numbers, with their reasons |
"""

from .findings import (
    Finding,
    displaced,
    displacement,
    flattest,
    furthest,
    nowhere_finite,
    partly_finite,
    spike,
    unbounded_coordinate,
    unbounded_direction,
    unbounded_hyperparameter,
)
from .probe import LogDensityProbe, log_density_probe
from .rays import Ray, Tail, slow_tails
from .settings import DEFAULT, Propriety

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
