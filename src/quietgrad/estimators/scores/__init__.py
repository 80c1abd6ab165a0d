"""Estimates of the score of a semi-implicit q, which is an expectation over q(eps | z)."""

from .chain import ChainMean, HmcChain
from .importance import LinearisedImportance, SharedImportance
from .score import AbstractScore
from .stein import SteinChain, SteinLinearised
from .stein_by_dimension import SteinByDimension
from .stein_shared import SteinShared

REGISTRY: dict[str, type[AbstractScore]] = {
    "chain": ChainMean,
    "stein": SteinByDimension,
    "stein-chain": SteinChain,
    "stein-linearised": SteinLinearised,
    "stein-shared": SteinShared,
    "shared-importance": SharedImportance,
    "linearised-importance": LinearisedImportance,
}

__all__ = [
    "REGISTRY",
    "AbstractScore",
    "ChainMean",
    "HmcChain",
    "LinearisedImportance",
    "SharedImportance",
    "SteinByDimension",
    "SteinChain",
    "SteinLinearised",
    "SteinShared",
]
