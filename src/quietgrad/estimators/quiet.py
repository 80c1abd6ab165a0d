"""quiet: sticking the landing with the draws that suit the family."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from .._checks import whole
from ..families import AbstractFamily, AbstractFlow, LowRank
from ..targets import Target
from .estimator import AbstractEstimator, Estimate
from .pathwise import Pathwise


class Quiet(AbstractEstimator):
    """STL with antithetic pairs; independent draws for low-rank families. Unbiased.

    Pairs cancel the noise of location parameters and STL quiets the scales, but pairs double the noise
    of low-rank factors, whose gradient is even in the draw. By default 2 draws a step, 10 for flows and
    low-rank families. Cost of a step: `draws` gradients of the target and one backward pass.
    """

    draws: int | None = eqx.field(static=True)

    def __init__(self, draws: int | None = None):
        self.draws = None if draws is None else whole(draws, "draws", least=1)

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def resolve(self, q: AbstractFamily) -> Pathwise:
        """The pathwise estimator that this is for the family."""
        wide = isinstance(q, AbstractFlow | LowRank)
        draws = (10 if wide else 2) if self.draws is None else self.draws
        sampler = "iid" if isinstance(q, LowRank) else "antithetic"
        return Pathwise(sampler=sampler, entropy="stl", draws=draws)

    def draws_for(self, q: AbstractFamily) -> int:
        """The draws asked for, or the family's default."""
        return self.resolve(q).draws

    def supports(self, target: Target, q: AbstractFamily) -> str | None:
        """As the pathwise estimator."""
        return self.resolve(q).supports(target, q)

    def _init(self, target: Target, q: AbstractFamily) -> PyTree:
        return self.resolve(q).init(target, q)

    def step(
        self, target: Target, q: AbstractFamily, state: Any, *, key: Key[Array, ""]
    ) -> tuple[Estimate, PyTree]:
        """A step of the pathwise estimator."""
        return self.resolve(q).step(target, q, state, key=key)
