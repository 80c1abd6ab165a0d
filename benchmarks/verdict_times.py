"""Whether verdicts stayed within their time, from stored rows: python benchmarks/verdict_times.py

A verdict may take five seconds, or as long as the fit if that was more. Rows are those of the zoos
(`zoo_fits_auto`, `brought_*_auto`) and of `hierarchies`, as far as they have both times; names of rows
that took longer are printed.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from timing import RESULTS

LEAST = 5.0


class Timed(NamedTuple):
    """A row's name, the wait for its fit and for its verdict."""

    name: str
    fit: float
    verdict: float

    @property
    def late(self) -> bool:
        """Whether the verdict took longer than it may."""
        return self.verdict > max(LEAST, self.fit)


def timed(row: dict[str, Any]) -> Timed | None:
    """The times of a row; None if it does not have both."""
    fit = row.get("wait", row.get("seconds"))
    if "clock" in row:
        fit = row["clock"]["total"]
    verdict = row.get("verdict_seconds", row.get("verdict_wait"))
    if fit is None or verdict is None:
        return None
    return Timed(f"{row.get('model', row.get('case'))}, seed {row.get('seed')}", fit, verdict)


def stored() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Files of rows that may have both times, with their rows."""
    for pattern in ("zoo_fits_auto.json", "brought_*_auto.json", "hierarchies.json"):
        for path in sorted(RESULTS.glob(pattern)):
            yield path.stem, json.loads(path.read_text())["rows"]


def main() -> None:
    """A line for each file, and one for each row that took too long."""
    for name, rows in stored():
        found = [one for one in map(timed, rows) if one is not None]
        late = [one for one in found if one.late]
        print(f"{name}: {len(found) - len(late)} of {len(found)} verdicts within their time")
        for one in late:
            print(f"  {one.name}: fit {one.fit:.1f} s, verdict {one.verdict:.1f} s")


if __name__ == "__main__":
    main()
