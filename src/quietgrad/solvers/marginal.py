"""The marginal density of a hierarchy's globals on the host: k numbers in, a value and k slopes out.

log p(g) is that of nested locals (`families/conditional`), at the cost of some gradients of the target.
A fit of q(g) is then one in k dimensions, whatever n.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..families.conditional import Nested, NestedLaplace, at_points, recentred, skewed_locals, skewness
from ..families.conditional.at_points import MOST_AT_FIRST
from ..session import Recorder


class Marginal(NamedTuple):
    """Values and slopes of log p(g) for nested locals."""

    nested: Nested
    session: Recorder

    def __call__(
        self, g: Float[np.ndarray, "points k"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points k"]]:
        """At each point, as double precision."""
        values, slopes = [], []
        for found in at_points(self.nested, g, marginal=True):
            self.session.check()
            values.append(found.values)
            slopes.append(found.slopes)
        return np.concatenate(values), np.concatenate(slopes)

    @property
    def dtype(self) -> np.dtype:
        """The precision of the program."""
        return np.dtype(self.nested.center.dtype)

    def begun(self, g: Float[np.ndarray, " k"]) -> "Marginal":
        """Locals found for g from a start that nothing is known of."""
        return self._replace(nested=recentred(self.nested, g, most=MOST_AT_FIRST))

    def recentred(
        self, g: Float[np.ndarray, " k"], sizes: Float[np.ndarray, " k"] | None = None
    ) -> "Marginal":
        """Predictions of the locals that begin at g; with `sizes` of differences, new slopes too."""
        return self._replace(nested=recentred(self.nested, g, sizes))

    def lost_by_gaussians(self) -> float:
        """Nats that Gaussian locals miss, to leading order: the sum of f'''^2 s^6 / 12 at the centre.

        Zero where there is no other kind of locals: in blocks of several, and in a chain.
        """
        structure = self.nested.structure
        if structure.b != 1 or structure.chained or not isinstance(self.nested, NestedLaplace):
            return 0.0
        return float(np.sum(skewness(self.nested)[1] ** 2)) / 12

    def skewed(self) -> "Marginal":
        """The same with skewed locals in place of Gaussian ones."""
        assert isinstance(self.nested, NestedLaplace)
        return self._replace(nested=skewed_locals(self.nested))
