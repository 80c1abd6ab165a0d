"""Named methods: each one a combination of parts."""

from ..moves import AbstractMove
from ..weighting import AbstractWeighting, SteinWeighting
from .maximum_likelihood import MaximumLikelihood


def stein(
    *,
    chains: int = 64,
    moves: int = 5,
    start: str = "persistent",
    move: AbstractMove | str = "mala",
    weighting: AbstractWeighting | None = None,
    recycle: bool | None = None,
) -> MaximumLikelihood:
    """Persistent chains with Stein weights for all points of their moves.

    Six points a chain and little noise: a quarter of the chains of the others, whose steps take longer.
    """
    weighting = weighting or SteinWeighting()
    if recycle is None:
        recycle = weighting.refuses_masses() is None
    return MaximumLikelihood(start, move, moves, chains, weighting, recycle=recycle)


def persistent_cd(
    *, chains: int = 256, moves: int = 5, move: AbstractMove | str = "mala"
) -> MaximumLikelihood:
    """Persistent contrastive divergence: chains go on from where they were, with equal weights."""
    return MaximumLikelihood("persistent", move, moves, chains)


def cd(*, chains: int = 256, moves: int = 5, move: AbstractMove | str = "mala") -> MaximumLikelihood:
    """Contrastive divergence, CD-k: k moves from the rows at each step."""
    return MaximumLikelihood("rows", move, moves, chains)
