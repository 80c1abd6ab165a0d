"""Variational families q(z; lambda): a transport of base draws, and what is known of it."""

from .conditional import Hierarchical
from .curved import Curved
from .family import (
    AbstractFamily,
    Advice,
    EstimatesDensity,
    HasDiagonalScale,
    HasEntropy,
    HasHostDensity,
    HasMoments,
    HasPathMetric,
    HostMap,
    Invertible,
    OnHost,
    ScalesFollow,
    split,
)
from .fits_quadratic import FitsQuadratic
from .flow import AbstractFlow
from .full_rank import FullRank
from .low_rank import LowRank
from .mean_field import MeanField
from .mixture import Components, Mixture
from .real_nvp import AffineRealNVP, RealNVP
from .registry import ANY_FAMILY, OTHER_NAMES, REGISTRY, named
from .semi_implicit import ParticleMixture, SemiImplicit
from .sparse import SparseGaussian
from .structured import AbstractStructured, Arrowhead, Chain
from .triangular import Triangular
from .whitened_flow import WhitenedRealNVP
from .whitened_layers import AutoregressiveFlow, SplineFlow
from .with_hyperparameters import (
    AbstractWithHyperparameters,
    WithHyperparameters,
    WithHyperparametersAndEntropy,
    beside,
)

__all__ = [
    "ANY_FAMILY",
    "OTHER_NAMES",
    "REGISTRY",
    "AbstractFamily",
    "AbstractFlow",
    "AbstractStructured",
    "AbstractWithHyperparameters",
    "Advice",
    "AffineRealNVP",
    "Arrowhead",
    "AutoregressiveFlow",
    "Chain",
    "Components",
    "Curved",
    "EstimatesDensity",
    "FitsQuadratic",
    "FullRank",
    "HasDiagonalScale",
    "HasEntropy",
    "HasHostDensity",
    "HasMoments",
    "HasPathMetric",
    "HostMap",
    "Hierarchical",
    "Invertible",
    "LowRank",
    "MeanField",
    "Mixture",
    "OnHost",
    "ParticleMixture",
    "RealNVP",
    "ScalesFollow",
    "SparseGaussian",
    "SplineFlow",
    "Triangular",
    "SemiImplicit",
    "WhitenedRealNVP",
    "WithHyperparameters",
    "WithHyperparametersAndEntropy",
    "beside",
    "named",
    "split",
]
