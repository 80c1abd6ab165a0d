"""quiet: sticking the landing with the draws that suit the family."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from .._checks import whole
from ..families import AbstractFamily
from ..targets import Target
from .estimator import AbstractEstimator, Estimate
from .pathwise import Pathwise


class Quiet(AbstractEstimator):
    """STL with the sampler and the number of draws that the family advises. Unbiased.

    Antithetic pairs cancel the noise of location parameters and STL quiets the scales. Pairs double the
    noise of low-rank factors, whose gradient is even in the draw, so those take independent draws. By
    default 2 draws a step, 10 for flows and low-rank families. Cost of a step: `draws` gradients of the
    target and one backward pass.
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
        advice = q.advice
        draws = advice.quiet_draws if self.draws is None else self.draws
        return Pathwise(sampler=advice.quiet_sampler, entropy="stl", draws=draws)

    def variance_bound(self, q: AbstractFamily) -> float:
        """As the pathwise estimator."""
        return self.resolve(q).variance_bound(q)

    def draws_for(self, q: AbstractFamily) -> int:
        """The draws asked for, or the family's default."""
        return self.resolve(q).draws

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """As the pathwise estimator."""
        return self.resolve(q).refuses(target, q)

    def _init(self, target: Target, q: AbstractFamily) -> PyTree:
        return self.resolve(q).init(target, q)

    def step(
        self, target: Target, q: AbstractFamily, state: Any, *, key: Key[Array, ""]
    ) -> tuple[Estimate, PyTree]:
        """A step of the pathwise estimator."""
        return self.resolve(q).step(target, q, state, key=key)
