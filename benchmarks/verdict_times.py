"""Whether verdicts stay within their time, and whether the limit of time changes them.

Run from the repository:
  python benchmarks/verdict_times.py          stored rows: verdicts that took longer than they may
  python benchmarks/verdict_times.py same     fits judged twice, with the limit and without

A verdict may take five seconds, or as long as the fit if that was more. Stored rows are those of the
zoos (`zoo_fits_auto`, `brought_*_auto`) and of `hierarchies`, as far as they have both times; names of
rows that took longer are printed. `same` fits models of the zoo, or of those that were brought to the
library (`--models` some of them, `--seeds`), with the family chosen, a process for each model, and
judges each fit by the same draws with the limit and with all the time in the world; what is stored is
not made again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from timing import RESULTS, save

LEAST = 5.0
NAME = "verdict_times"


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
    for pattern in ("zoo_fits_auto.json", "brought_*_auto.json", "hierarchies.json", f"{NAME}.json"):
        for path in sorted(RESULTS.glob(pattern)):
            yield path.stem, json.loads(path.read_text())["rows"]


def main() -> None:
    """Look at what is stored, or judge fits twice, or those of one model within its own process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="stored", choices=["stored", "same"])
    parser.add_argument("--zoo", default="old", choices=["old", "brought"])
    parser.add_argument("--models", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        zoo, model, *seeds = given.case
        judged_twice(zoo, model, [int(seed) for seed in seeds])
    elif given.what == "same":
        measure(given.zoo, given.models or models(given.zoo), given.seeds)
        same()
    else:
        late()
        same()


def late() -> None:
    """A line for each file, and one for each row that took too long."""
    for name, rows in stored():
        found = [one for one in map(timed, rows) if one is not None]
        slow = [one for one in found if one.late]
        print(f"{name}: {len(found) - len(slow)} of {len(found)} verdicts within their time")
        for one in slow:
            print(f"  {one.name}: fit {one.fit:.1f} s, verdict {one.verdict:.1f} s")


def same() -> None:
    """How many fits got the same verdict with the limit and without, and which did not."""
    rows = own_rows()
    if not rows:
        return
    other = [row for row in rows if row["verdict"] != row["verdict_without_limit"]]
    share = 1 - len(other) / len(rows)
    print(f"{len(rows) - len(other)} of {len(rows)} verdicts ({share:.1%}) are those without a limit")
    for row in other:
        print(
            f"  {row['zoo']}, {row['model']}, seed {row['seed']}: {row['verdict']!r} in "
            f"{row['verdict_seconds']:.1f} s, {row['verdict_without_limit']!r} in "
            f"{row['seconds_without_limit']:.1f} s"
        )


def own_rows() -> list[dict[str, Any]]:
    """Fits that were judged twice."""
    path = RESULTS / f"{NAME}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def models(zoo: str) -> list[str]:
    """All of a zoo."""
    if zoo == "old":
        from zoo import REGISTRY
    else:
        from brought import REGISTRY
    return list(REGISTRY)


def measure(zoo: str, names: list[str], seeds: list[int]) -> None:
    """Each model in a process; what is stored is left."""
    for name in names:
        known = {(row["zoo"], row["model"], row["seed"]) for row in own_rows()}
        wanted = [str(seed) for seed in seeds if (zoo, name, seed) not in known]
        if not wanted:
            continue
        command = [sys.executable, str(Path(__file__)), "--case", zoo, name, *wanted]
        around = os.environ | ({"JAX_ENABLE_X64": "1"} if zoo == "old" else {})
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=around)
        made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for row in made:
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if done.returncode:
            print(f"{name}: {done.stderr[-2000:]}", file=sys.stderr)
        save(NAME, own_rows() + made)


def judged_twice(zoo: str, name: str, seeds: list[int]) -> None:
    """Fit, and print a row for each seed: both verdicts and what they took."""
    import math

    import jax.random as jr

    import quietgrad as qg

    if zoo == "old":
        from zoo import load

        target, batch_size = load(name).target, None
    else:
        from brought import load

        model = load(name)
        target, batch_size = model.target(), model.batch_size
    for seed in seeds:
        result = qg.fit(target, "auto", key=jr.key(seed), batch_size=batch_size, progress=False)
        first = result.diagnose(progress=False)
        second = result.diagnose(seconds=math.inf, progress=False)
        row = {
            "zoo": zoo,
            "model": name,
            "seed": seed,
            "family": type(result.q).__name__,
            "seconds": round(result.clock["total"], 2),
            "verdict": str(first.verdict),
            "verdict_seconds": round(first.seconds, 2),
            "verdict_without_limit": str(second.verdict),
            "seconds_without_limit": round(second.seconds, 2),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
