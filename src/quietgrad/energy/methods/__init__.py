"""Ways to learn an energy: what gradient a step goes by."""

from collections.abc import Callable

from . import presets
from .jarzynski import Jarzynski
from .maximum_likelihood import MaximumLikelihood
from .method import AbstractEnergyMethod, StepInfo
from .score_matching import ScoreMatching

REGISTRY: dict[str, Callable[..., AbstractEnergyMethod]] = {
    "stein": presets.stein,
    "pcd": presets.persistent_cd,
    "cd": presets.cd,
    "jarzynski": Jarzynski,
    "score-matching": ScoreMatching,
}

__all__ = [
    "REGISTRY",
    "AbstractEnergyMethod",
    "Jarzynski",
    "MaximumLikelihood",
    "ScoreMatching",
    "StepInfo",
]
