"""Estimators of the ELBO gradient: the contract, and names that are imported when first used."""

from typing import TYPE_CHECKING

from .._util.later import names_of
from .estimator import AbstractEstimator, Cost, Estimate, estimator, resolve

if TYPE_CHECKING:
    from .controlled import Controlled
    from .joint_minibatch import Joint
    from .ksivi import Ksivi
    from .pathwise import Pathwise
    from .quiet import Quiet
    from .registry import REGISTRY
    from .score_function import ScoreFunction
    from .semi_implicit import SemiImplicitPathwise
    from .sivi import Sivi

__getattr__ = names_of(
    __name__,
    {
        "controlled": ["Controlled"],
        "joint_minibatch": ["Joint"],
        "ksivi": ["Ksivi"],
        "pathwise": ["Pathwise"],
        "quiet": ["Quiet"],
        "registry": ["REGISTRY"],
        "score_function": ["ScoreFunction"],
        "semi_implicit": ["SemiImplicitPathwise"],
        "sivi": ["Sivi"],
    },
)

__all__ = [
    "REGISTRY",
    "AbstractEstimator",
    "Controlled",
    "Cost",
    "Estimate",
    "Joint",
    "Ksivi",
    "Pathwise",
    "Quiet",
    "ScoreFunction",
    "SemiImplicitPathwise",
    "Sivi",
    "estimator",
    "resolve",
]
