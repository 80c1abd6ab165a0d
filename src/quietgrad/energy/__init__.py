"""Energy-based models: fitted by maximum likelihood with chains, and Stein weights for the noise."""

from .annealing import LogZ
from .fit import EnergyMoment, fit_energy
from .methods import REGISTRY, AbstractEnergyMethod, Jarzynski, MaximumLikelihood, ScoreMatching
from .moves import REGISTRY as MOVES
from .moves import AbstractMove, Langevin, Mala, Moved
from .result import EnergyResult
from .weighting import AbstractWeighting, SteinWeighting, UniformWeighting

__all__ = [
    "MOVES",
    "REGISTRY",
    "AbstractEnergyMethod",
    "AbstractMove",
    "AbstractWeighting",
    "EnergyMoment",
    "EnergyResult",
    "Jarzynski",
    "Langevin",
    "LogZ",
    "Mala",
    "MaximumLikelihood",
    "Moved",
    "ScoreMatching",
    "SteinWeighting",
    "UniformWeighting",
    "fit_energy",
]
