"""A claim of the paper, judged: what was measured, how surely, and what follows.

A claim is a conjunction of parts. It holds if all parts hold, it does not if one part does not, and
otherwise the records cannot tell.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """What the records say about a claim."""

    HOLDS = "holds"
    DOES_NOT = "does not"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Part:
    """One measurable statement within a claim: the verdict on it, the number behind it, and why.

    `reps` is set where `uncertainty` is an interval over so many repetitions, or whatever `over` says.
    `absent` marks a part that these records cannot judge, because rows are missing or runs too short.
    """

    verdict: Verdict
    why: str
    value: str = ""
    uncertainty: str = ""
    reps: int = 0
    over: str = "repetitions"
    absent: bool = False


@dataclass(frozen=True)
class Claim:
    """A line of the claims table, all of it text to print.

    `value`, `uncertainty` and `why` put together what the `parts` say one by one.
    """

    number: int
    text: str
    how: str
    value: str
    uncertainty: str
    verdict: Verdict
    why: str
    parts: tuple[Part, ...] = ()

    @property
    def within_reach(self) -> bool:
        """Whether these records can judge it: there is a verdict, or only noise stands before one."""
        if self.verdict is not Verdict.CANNOT_TELL:
            return True
        return bool(self.parts) and not any(part.absent for part in self.parts)


def missing(what: str) -> Part:
    """A part that cannot be judged because there are no records for it; `what` says which could tell."""
    return Part(Verdict.CANNOT_TELL, f"not judged: {what}", absent=True)


def conclude(number: int, text: str, how: str, parts: Sequence[Part], *remarks: str) -> Claim:
    """The claim that consists of `parts`; `remarks` (empty ones are left out) end its `why`."""
    verdicts = {part.verdict for part in parts}
    if Verdict.DOES_NOT in verdicts:
        verdict = Verdict.DOES_NOT
    elif Verdict.CANNOT_TELL in verdicts or not parts:
        verdict = Verdict.CANNOT_TELL
    else:
        verdict = Verdict.HOLDS
    # What it was measured on is of interest only if something was.
    told = [part.why for part in parts]
    told += remarks if any(part.value for part in parts) else []
    return Claim(
        number,
        text,
        how,
        value="; ".join(part.value for part in parts if part.value) or "nothing measured",
        uncertainty=_uncertainty(parts),
        verdict=verdict,
        why=". ".join(_sentence(text) for text in told if text) + ".",
        parts=tuple(parts),
    )


def _uncertainty(parts: Sequence[Part]) -> str:
    known = "; ".join(part.uncertainty for part in parts if part.uncertainty)
    counts: dict[str, set[int]] = {}
    for part in parts:
        if part.reps > 1:
            counts.setdefault(part.over, set()).add(part.reps)
    if not counts:
        return known or "none"
    return f"{known} (90% intervals over {' and '.join(map(_count, counts, counts.values()))})"


def _count(over: str, reps: set[int]) -> str:
    few, many = min(reps), max(reps)
    return f"{few} {over}" if few == many else f"{few} to {many} {over}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
