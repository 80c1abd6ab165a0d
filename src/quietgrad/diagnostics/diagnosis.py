"""What a diagnosis is made of and hands back: an ending, restarts, a verdict with its reasons."""

import dataclasses
import enum
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._util.html import AMBER, GREEN, RED, badge, bullets, element
from ..status import Status
from .long_chains import ChainDraws


class Verdict(enum.StrEnum):
    """Whether to use q as it is, its draws with importance weights, or neither."""

    TRUST = "trust"
    CORRECTED = "use the corrected draws"
    DO_NOT_TRUST = "do not trust"


COLOURS = {Verdict.TRUST: GREEN, Verdict.CORRECTED: AMBER, Verdict.DO_NOT_TRUST: RED}


class Ending(NamedTuple):
    """How the fit ended, as far as the verdict asks."""

    status: Status
    hint: str


class Restart(NamedTuple):
    """Another fit of the same target: means and scales of its q, and its ELBO."""

    mean: Float[np.ndarray, " dim"]
    std: Float[np.ndarray, " dim"]
    elbo: float
    elbo_error: float


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The verdict, why, and what to do.

    `shift` is the posterior mean minus q's in posterior sds and `std_ratio` q's sd over the posterior's,
    as estimated, with standard errors; infinite where nothing could be found out. `effective` is how
    many posterior draws the weighted ones are worth. `gain` is the expected gain of a Newton step, in
    nats. It took `seconds` out of at most `limit`. `unseen` is what there was no time for, and without
    which nothing is trusted; `further` is what more time would be spent on. `chain_draws` are draws of
    long chains, which were run if q was off and weights did not correct it.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    khat: float
    khat_limit: float
    effective: float
    draws: int
    bad_share: float
    shift: Float[np.ndarray, " dim"]
    shift_error: Float[np.ndarray, " dim"]
    std_ratio: Float[np.ndarray, " dim"]
    std_ratio_error: Float[np.ndarray, " dim"]
    gain: float
    gain_error: float
    gradients: int
    seconds: float = 0.0
    limit: float = math.inf
    unseen: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    chain_draws: ChainDraws | None = None

    @property
    def by_chains(self) -> bool:
        """Whether the corrected draws are those of chains."""
        return self.chain_draws is not None and self.chain_draws.enough

    @property
    def time(self) -> str:
        """What the limit of time left out, in a sentence; empty if it was long enough."""
        more = (*self.unseen, *self.further)
        if not more:
            return ""
        return (
            f"{self.seconds:.1f} s out of at most {self.limit:.1f}; with more, diagnose(seconds=...) "
            f"looks at {'; '.join(more)}"
        )

    def __str__(self) -> str:
        lines = [f"{self.verdict}", *(f"  - {reason}" for reason in self.reasons)]
        if self.advice:
            lines += ["what to do:", *(f"  - {step}" for step in self.advice)]
        lines += [self.time] if self.time else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        advice = [element("div", "what to do:"), bullets(self.advice)] if self.advice else []
        verdict = badge(str(self.verdict), COLOURS[self.verdict])
        advice += [element("div", self.time)] if self.time else []
        return element("div", verdict, bullets(self.reasons), *advice, style="margin:.6em 0")
