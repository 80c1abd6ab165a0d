"""A claim about a study, judged: what was measured, how surely, and what follows.

A claim consists of parts, each with a verdict of its own. It holds if all of them hold, it does not if
none holds and some do not, and it holds in part if some do and some do not.
"""

import dataclasses
import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """What the records say about a claim or a part of one.

    `SHOWN` is for parts that say that something can happen: one case shows it, and its absence here
    refutes nothing. `ELSEWHERE` is for parts about hardware that the records are not from. `IN_PART` is
    for claims only.
    """

    HOLDS = "holds"
    SHOWN = "shown"
    IN_PART = "in part"
    DOES_NOT = "does not"
    CANNOT_TELL = "cannot tell"
    ELSEWHERE = "not on this machine"


@dataclass(frozen=True)
class Part:
    """One measurable statement within a claim: the verdict on it, the number behind it, and why.

    `reps` is set where `uncertainty` is an interval over so many repetitions, or whatever `over` says.
    `absent` marks a part that these records cannot judge, because rows are missing or runs too short.
    `quote` has the words that the part is about, as they stand in the source.
    """

    verdict: Verdict
    why: str
    value: str = ""
    uncertainty: str = ""
    reps: int = 0
    over: str = "repetitions"
    absent: bool = False
    quote: str = ""


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


def said(quote: str, part: Part) -> Part:
    """The part with the words of the source that it is about."""
    return dataclasses.replace(part, quote=quote)


def conclude(number: int, text: str, how: str, parts: Sequence[Part], *remarks: str) -> Claim:
    """The claim that consists of `parts`; `remarks` (empty ones are left out) end its `why`."""
    # What it was measured on is of interest only if something was.
    told = [part.why for part in parts]
    told += remarks if any(part.value for part in parts) else []
    return Claim(
        number,
        text,
        how,
        value="; ".join(part.value for part in parts if part.value) or "nothing measured",
        uncertainty=_uncertainty(parts),
        verdict=_conclusion({part.verdict for part in parts}),
        why=". ".join(_sentence(text) for text in told if text) + ".",
        parts=tuple(parts),
    )


def _conclusion(verdicts: set[Verdict]) -> Verdict:
    """What follows from the parts; those about other hardware do not count beside others."""
    if verdicts == {Verdict.ELSEWHERE}:
        return Verdict.ELSEWHERE
    good = bool(verdicts & {Verdict.HOLDS, Verdict.SHOWN})
    if Verdict.DOES_NOT in verdicts:
        return Verdict.IN_PART if good else Verdict.DOES_NOT
    return Verdict.HOLDS if good and Verdict.CANNOT_TELL not in verdicts else Verdict.CANNOT_TELL


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
