"""A difference in nats with its standard error, and the one test of whether it is real.

Two answers are compared at the same draws, an expected gain is estimated from groups of draws. Both are
a mean with a standard error, and every decision of a fit asks the same question of them: is the
difference beyond a threshold, whatever the draws were?
"""

import math
from typing import NamedTuple

# Standard errors beyond which a difference is not put down to the draws: 95 % of normal errors are
# smaller. A fit takes some dozen decisions and repairs a wrong one by the next, so that a smaller error
# rate would cost more draws than it saves steps.
STANDARD_ERRORS = 2.0


class Difference(NamedTuple):
    """`nats`, estimated with a standard error of `error`."""

    nats: float
    error: float

    def clearly_above(self, threshold: float = 0.0) -> bool:
        """Whether it exceeds the threshold beyond its error."""
        return self.nats - STANDARD_ERRORS * self.error > threshold

    def clearly_below(self, threshold: float = 0.0) -> bool:
        """Whether it stays below the threshold, its error included."""
        return self.nats + STANDARD_ERRORS * self.error < threshold

    def conclusive(self, threshold: float) -> bool:
        """Whether it is clearly above a threshold, or what is there to gain clearly below it."""
        return self.clearly_above(threshold) or self.non_negative.clearly_below(threshold)

    @property
    def non_negative(self) -> "Difference":
        """The same for a quantity that cannot be negative: what a step that is optional may gain."""
        return Difference(max(self.nats, 0.0), self.error)

    def __str__(self) -> str:
        return f"{self.nats:.3f} ± {self.error:.3f} nats"


# Of something that could not be estimated.
UNKNOWN = Difference(math.inf, 0.0)
