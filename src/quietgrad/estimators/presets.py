"""Named estimators: each one a combination of parts."""

from ..entropy import AbstractEntropy
from .pathwise import Pathwise


def nocv(*, draws: int = 10, entropy: AbstractEntropy | str = "sampled") -> Pathwise:
    """NoCV: the plain pathwise estimator."""
    return Pathwise(draws=draws, entropy=entropy)


def stl(*, draws: int = 10) -> Pathwise:
    """STL: independent draws without the explicit score of q."""
    return Pathwise(draws=draws, entropy="stl")
