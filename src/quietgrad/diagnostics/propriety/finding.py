"""What is wrong with a target, as a status and a sentence."""

from typing import NamedTuple

from ...status import Status


class Finding(NamedTuple):
    """A reason why a fit cannot succeed, and a sentence that says what to do.

    `certain` says that going on would not change it, so that a fit may end on the way.
    """

    status: Status
    hint: str
    certain: bool = True

    @property
    def ending(self) -> tuple[Status, str]:
        """As an ending of a fit."""
        return self.status, self.hint
