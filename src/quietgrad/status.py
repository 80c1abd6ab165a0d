"""How a fit ended, in a word."""

import enum


class Status(enum.StrEnum):
    """How a fit ended. Only `CONVERGED` says that the answer is where the method was going."""

    CONVERGED = "converged"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"
    NON_FINITE = "non-finite"
    UNBOUNDED = "unbounded"
    COLLAPSED = "collapsed"

    @property
    def failed(self) -> bool:
        """Whether the target or the numbers stood in the way, so that more time would not help."""
        return self in (Status.STALLED, Status.NON_FINITE, Status.UNBOUNDED, Status.COLLAPSED)
