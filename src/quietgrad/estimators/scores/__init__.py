"""Estimates of the score of a semi-implicit q, which is an expectation over q(eps | z)."""

from .chain import ChainMean, HmcChain
from .importance import LinearisedImportance, SharedImportance
from .score import AbstractScore
from .stein import SteinChain, SteinLinearised

REGISTRY: dict[str, type[AbstractScore]] = {
    "chain": ChainMean,
    "stein-chain": SteinChain,
    "stein-linearised": SteinLinearised,
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
    "SteinChain",
    "SteinLinearised",
]
