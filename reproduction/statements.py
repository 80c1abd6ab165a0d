"""Whether the sentences of the published study still follow from its cells.

Run from the repository: python reproduction/statements.py [--paper FILE]
Checks the conclusion (`conclusion.py`), findings and remarks (`findings.py`, `remarks.py`, `beside.py`),
and the sentences of `verified.py`, which stand in the page as they are and must be there and true; and
that the page has the claims and all else that `tables.py` writes as the cells give it. Exits with 1 if a
cell has changed one of them, or if words in quotation marks are not the paper's (with `--paper`, its
LaTeX).
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from beside import BESIDE
from conclusion import GROUPS, conclusion
from findings import FINDINGS
from remarks import REMARKS
from results import HERE, Results, read
from verified import VERIFIED

from quietgrad.study.claim import Verdict

PAGE = HERE.parent / "docs" / "reproduction.md"
# A further page with the paper's words.
FUTURE = HERE.parent / "docs" / "future-work.md"


def tally(results: Results) -> str:
    """How many parts of the paper's claims hold, in a sentence."""
    verdicts = [part.verdict for claim in results.claims for part in claim.parts]
    count = {verdict: verdicts.count(verdict) for verdict in Verdict}
    return (
        f"Of {len(verdicts)} parts, **{count[Verdict.HOLDS]} hold**, {count[Verdict.SHOWN]} that say "
        "what can "
        f"happen are shown by a case, **{count[Verdict.DOES_NOT]} do not hold** here, "
        f"{count[Verdict.CANNOT_TELL]} are open and {count[Verdict.ELSEWHERE]} cannot be judged on "
        "this machine."
    )


CHECKED = {**FINDINGS, **REMARKS, **BESIDE}
BLOCKS: dict[str, Callable[[Results], str]] = {
    "conclusion": conclusion,
    "tally": tally,
    **{name: (lambda results, each=each: each(results).text) for name, each in CHECKED.items()},
}


def plain(text: str) -> str:
    """The paper's LaTeX as the words of a reader, for comparing quotations."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    for old, new in (
        (r"\nmc", "L"),
        (r"\qlbda", "q"),
        (r"\dimz", "dim z"),
        (r"\tilde \dt", "f~"),
        (r"\beta", "β"),
        (r"\intgd", "φ"),
        (r"\%", "%"),
    ):
        text = text.replace(old, new)
    # Of the paper's ties only those between words: "f~" is its f with a tilde.
    text = re.sub(r"(?<!f)~", " ", text)
    # Single quotation marks as a reader sees them.
    text = re.sub(r"`([^'`]*)'", r"‘\1’", text)
    return words(text.replace("$", ""))


def words(text: str) -> str:
    """The text with single spaces, and none around an equals sign."""
    return re.sub(r"\s*=\s*", "=", re.sub(r"\s+", " ", text))


def quotations(results: Results, page: str = "") -> list[str]:
    """Every text that is put in (curly) quotation marks as the paper's."""
    parts = [part.quote for claim in results.claims for part in claim.parts]
    shown = [quote.replace("*", "").rstrip(".") for quote in re.findall("“([^”]+)”", page)]
    return list(dict.fromkeys([*(quote for quote, _ in GROUPS), *filter(None, parts), *shown]))


def problems(results: Results, page: str, source: str | None = None, further: str = "") -> list[str]:
    """What is wrong: statements that are not true any more, sentences that are not there.

    And with the paper's `source`, what the page and a `further` one quote that is not in it.
    """
    found = []
    for each in [*(one for _, group in GROUPS for one in group), *CHECKED.values()]:
        sentence = each(results)
        if not sentence.holds:
            found.append(f"{each.__name__} is not true any more: {sentence.text} ({sentence.evidence})")
        if re.search(r"\bnan\b|\binf\b", sentence.text):
            found.append(f"{each.__name__} has no number: {sentence.text}")
    flat = re.sub(r"\s+", " ", page)
    for text, true in VERIFIED.items():
        if text not in flat:
            found.append(f"this sentence is not on the page: {text}")
        if not true(results):
            found.append(f"this is not true any more: {text}")
    if source is not None:
        known = plain(source)
        found += [
            f"not the paper's words: {quote}"
            for quote in quotations(results, page + further)
            if words(quote) not in known
        ]
    return found


def main(arguments: Sequence[str] | None = None, *, here: Path = HERE) -> int:
    """Check everything by the cells that are stored `here`; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", type=Path, help="the paper's LaTeX source, for the quotations")
    given = parser.parse_args(arguments).paper
    source = None if given is None else given.read_text(encoding="utf-8")
    # It has the sentences of this script among its tables.
    from tables import stale

    results, page = read(here), PAGE.read_text(encoding="utf-8")
    found = problems(results, page, source, FUTURE.read_text(encoding="utf-8"))
    found += [f"the page does not have what the cells give: {name}" for name in stale(page, results)]
    print("\n".join(found) or "every statement holds")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
