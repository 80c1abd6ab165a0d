"""Variational families q(z; lambda): a transport of base draws, and what is known of it."""

from .embed import can_embed, embed
from .family import AbstractFamily, HasEntropy, HasMoments, Invertible
from .flow import AbstractFlow
from .full_rank import FullRank
from .low_rank import LowRank
from .mean_field import MeanField
from .real_nvp import AffineRealNVP, RealNVP

REGISTRY: dict[str, type[AbstractFamily]] = {
    "mean-field": MeanField,
    "low-rank": LowRank,
    "full-rank": FullRank,
    "real-nvp": RealNVP,
    "real-nvp-affine": AffineRealNVP,
}

__all__ = [
    "REGISTRY",
    "AbstractFamily",
    "AbstractFlow",
    "AffineRealNVP",
    "FullRank",
    "HasEntropy",
    "HasMoments",
    "Invertible",
    "LowRank",
    "MeanField",
    "RealNVP",
    "can_embed",
    "embed",
]
