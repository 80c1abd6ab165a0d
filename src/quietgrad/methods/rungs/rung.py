"""The contract of a rung: a kind of q that the ladder of families may try above the answer that stands.

A rung is a value with its numbers as fields, so that `print(Auto())` shows it. It says why it cannot be
tried, whether it can mend what is wrong with the present answer, and drives solvers from there. It
compares nothing: what it records is compared with the answer below by the ladder.
"""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx

from ..._util.compiling import program
from ..._util.random import key_of
from ...families import AbstractFamily
from ...session import Candidate, Recorder
from ...session.clock import COMPILE
from ..method import Ending
from .evidence import Evidence

if TYPE_CHECKING:
    from ..auto import Fit


class AbstractRung(eqx.Module):
    """Frozen: one rung can be tried on any number of problems."""

    # What `explain` calls it: a noun with its article.
    title: ClassVar[str] = "a richer family"
    # Families that this rung solves for where a user asks for one by name, and whether a Gaussian comes
    # first then; otherwise it begins at the family's own start.
    families: ClassVar[tuple[type[AbstractFamily], ...]] = ()
    from_gaussian: ClassVar[bool] = True
    # Whether it needs programs of its own. One that does is not tried where weighted draws of the
    # present answer would be trusted: the user waits for XLA, not for arithmetic.
    compiles: ClassVar[bool] = True
    # Times the seconds of compilation so far that programs of its own take, of which none can be
    # interrupted: those of a flow or a hierarchy take about 4 times a Gaussian's (eight schools: 4.8 and
    # 1.3 processor seconds).
    compilation: float = 4.0

    @abc.abstractmethod
    def refuses(self, fit: "Fit") -> str | None:
        """Why it cannot be tried on this problem; None if it can. It is asked before any solver runs."""

    @abc.abstractmethod
    def mends(self, evidence: Evidence) -> bool:
        """Whether what is wrong with the present answer is of a kind that this rung can mend."""

    def improves(self, evidence: Evidence) -> bool:
        """Whether it is worth trying though the present answer would be trusted."""
        del evidence
        return False

    def needed(self, fit: "Fit", evidence: Evidence) -> bool:
        """Whether its programs are worth it though draws of the present answer could be corrected.

        It is then tried before all others: what these would gain, it gains too.
        """
        del fit, evidence
        return False

    @abc.abstractmethod
    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """Drive solvers from the answer below, and say how that ended; None if nothing was found.

        `fit.session` records what is found. If the best of it is clearly better than `below`, it becomes
        the present answer and this ending that of the fit.
        """

    def out_of_time(self, fit: "Fit") -> str | None:
        """Why its programs would not be compiled within the time limit; None if they would, or there is
        none."""
        left = fit.session.left()
        if not self.compiles or left >= self.compilation * fit.session.clock.spent(COMPILE):
            return None
        return f"its programs would not be compiled within the {left:.1f} seconds that are left"

    def begin(self, fit: "Fit") -> Ending | None:
        """The ladder's first answer by this rung, if it needs none below; None if it does.

        The first rung that begins takes the place of the mean-field solution.
        """
        del fit
        return None


def member(kind: type[AbstractFamily], dim: int, session: Recorder, **more: Any) -> AbstractFamily:
    """A member of a family as its `init` makes it, by one program."""
    return program(kind.init)(dim, key=key_of(session.seed(kind.__name__)), **more)
