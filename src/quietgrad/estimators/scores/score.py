"""The contract of a score: s(w) = grad log q(w) = E_{q(eps' | w)} grad_w log q(w | eps') at many points.

Coordinates w are those of the family's fixed Gaussian. Nothing here is differentiated.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from ...families.semi_implicit import Generator


class AbstractScore(eqx.Module):
    """Estimates the score at points, given the eps that made each of them."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether the mean over eps given w, and over the estimate's own draws, can miss s(w)."""

    @abc.abstractmethod
    def gradients(self, mixing: int) -> int:
        """Gradients of log q(w, eps) in eps, or passes that cost as much, for each point."""

    def init(self, generator: Generator) -> PyTree:
        """What is adapted from step to step, before the first one."""
        del generator
        return None

    @abc.abstractmethod
    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: PyTree,
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], PyTree]:
        """The scores, and the state for the next step."""
