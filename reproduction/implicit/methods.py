"""What is compared: each method is a family at its start, and the estimator that trains it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.random as jr

from quietgrad.estimators import Ksivi, Pathwise, SemiImplicitPathwise, Sivi
from quietgrad.estimators.scores import (
    ChainMean,
    SharedImportance,
    SteinByDimension,
    SteinChain,
    SteinLinearised,
)
from quietgrad.families import ParticleMixture, SemiImplicit

DRAWS = 32


class Method(NamedTuple):
    """How a member is made from the Gaussian, and the estimator."""

    family: Callable[..., Any]
    estimator: Any
    title: str


METHODS: dict[str, Method] = {
    "sivi": Method(SemiImplicit.init, Sivi(draws=DRAWS), "SIVI"),
    "uivi": Method(SemiImplicit.init, SemiImplicitPathwise(ChainMean(), draws=DRAWS), "UIVI"),
    # As the preset: shared prior draws where eps has few dimensions, else the chain of UIVI.
    "uivi-stein": Method(
        SemiImplicit.init, SemiImplicitPathwise(SteinByDimension(), draws=DRAWS), "UIVI + Stein"
    ),
    "uivi-stein-chain": Method(
        SemiImplicit.init,
        SemiImplicitPathwise(SteinChain(), draws=DRAWS),
        "UIVI + Stein, always by chains",
    ),
    "stein-linearised": Method(
        SemiImplicit.init,
        SemiImplicitPathwise(SteinLinearised(), draws=DRAWS),
        "Stein, linearised points",
    ),
    "shared": Method(
        SemiImplicit.init,
        SemiImplicitPathwise(SharedImportance(1024), draws=DRAWS),
        "shared importance sampling",
    ),
    "ksivi": Method(SemiImplicit.init, Ksivi(draws=64), "KSIVI"),
    "particles": Method(ParticleMixture.init, Pathwise(entropy="stl", draws=DRAWS), "particles"),
}
# Fitted by `qg.fit` with nothing to tune, for as long as it takes.
FITS = {"full-rank": "full-rank Gaussian", "real-nvp-whitened": "flow", "auto": "family chosen"}


def member(method: Method, dim: int, mixing: int, gaussian: Any, seed: int) -> Any:
    """The method's family at the Gaussian."""
    made = method.family(dim, key=jr.key(seed), mixing=mixing)
    return made.start_from(gaussian, key=jr.key(seed + 1))
