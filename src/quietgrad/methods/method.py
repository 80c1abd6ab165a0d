"""The contract of a method: how an ELBO is climbed. Settings in the module, everything else recorded."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, UInt32

from .._util.compiling import program
from .._util.random import key_of
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..session import Candidate, Problem, Recorder
from ..status import Status
from ..targets import Target

__all__ = ["AbstractMethod", "Ending", "Problem", "Recorder", "Piloted", "started_from"]

# How a method thinks it ended, and a sentence on it; the recorder checks both.
Ending = tuple[Status, str]
# Of Newton steps that stochastic ones could still gain upon.
UNSETTLED: Ending = (Status.BUDGET, "Newton steps ended before they were stationary")


class Piloted(NamedTuple):
    """Where a start leads, roughly: a mean-field start there, and an answer if its ELBO is finite."""

    first: MeanField
    answer: Candidate | None


class AbstractMethod(eqx.Module):
    """A way to maximise the ELBO. Frozen: the same method can fit any number of problems."""

    def __str__(self) -> str:
        """The plan: every number, whether it is a default or not."""
        return "\n".join(_lines(self))

    @property
    def chooses_family(self) -> bool:
        """Whether it can be asked for the family too."""
        return False

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """Why this method cannot fit the family to the target; None if it can."""
        del target, q, batch_size
        return None

    def pilot(self, problems: Sequence[Problem], session: Recorder) -> list[Piloted] | None:
        """Where problems that differ in their starts lead, for far less than a fit; None if unknown."""
        del problems, session
        return None

    @abc.abstractmethod
    def run(self, problem: Problem, session: Recorder) -> Ending:
        """Fit. Answers, decisions, clock and random seeds go through the session.

        The answer of the fit is `session.answer`, by default the best one that was recorded.
        """


def started_from(q: AbstractFamily, solution: AbstractFamily, session: Recorder) -> AbstractFamily:
    """The member of q's family that is closest to the solution of a simpler one.

    On the host where a mean-field solution becomes a Gaussian, else by one program.
    """
    if isinstance(q, FitsQuadratic) and q.any_covariance and isinstance(solution, MeanField):
        precision = np.diag(1 / np.diagonal(solution.host_covariance()))
        return q.for_quadratic(np.asarray(solution.mean(), float), precision)
    return _start(q, solution, session.seed("start"))


@program
def _start(q: AbstractFamily, solution: AbstractFamily, words: UInt32[Array, "2"]) -> AbstractFamily:
    return q.start_from(solution, key=key_of(words))


def _lines(module: eqx.Module, name: str = "", indent: str = "") -> list[str]:
    """A module with all its fields, one a line, those of its parts indented."""
    lines = [f"{indent}{name}{type(module).__name__}"]
    for field in dataclasses.fields(module):
        value, inner = getattr(module, field.name), f"{indent}  "
        if isinstance(value, eqx.Module) and dataclasses.fields(value):
            lines += _lines(value, f"{field.name}: ", inner)
        elif isinstance(value, tuple) and any(isinstance(part, eqx.Module) for part in value):
            lines.append(f"{inner}{field.name}:")
            for part in value:
                lines += _lines(part, indent=f"{inner}  ")
        else:
            # Functions by their name, not by where they are in memory.
            lines.append(f"{inner}{field.name}: {getattr(value, '__name__', value)}")
    return lines
