"""Put every seeded bug into a copy of the project and see whether the tests notice.

    python -m tools.mutations                     all that are not in the file of results yet
    python -m tools.mutations --list adversary    those of the second list, which has its own results
    python -m tools.mutations --only "beta"       those with this in their name or symbol, several times
    python -m tools.mutations --survivors         those that were judged and not killed, again
    python -m tools.mutations --score             the score of the results that are kept, by module
    python -m tools.mutations --fresh             forget earlier results
    python -m tools.mutations --check             only look whether every pattern is still found

Killed: a test of the selection fails with the bug and passes without it. Exit code 0 if every
text is found and every survivor is explained.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

from . import LISTS
from .finding import SOURCES, Gone, find
from .mutant import Mutant
from .related import related
from .workshop import NONE, ROOT, Workshop, bug_at

RESULTS = ROOT / "tools" / "mutations"
KILLED, SURVIVED, GONE, UNFIT = "killed", "survived", "not found", "fails without the bug"
# pytest: 1 tests failed, 2 interrupted (an import that fails), -1 an endless loop.
FAILURES = (1, 2, -1)
# Processor seconds of tests for one bug, by what they took before.
ENOUGH = 7.0
# A kill whose test has not passed without the bug yet, and how many of them are confirmed together.
DOUBTFUL, TOGETHER = "not confirmed", 12


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutations", description=__doc__)
    parser.add_argument("--list", choices=LISTS, default="seeded", help="which list of bugs")
    parser.add_argument("--only", action="append", default=[], help="part of a name or symbol")
    parser.add_argument("--sample", type=int, help="so many of them, drawn at random with a fixed seed")
    parser.add_argument("--score", action="store_true", help="only print what is known")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument(
        "--survivors", action="store_true", help="judge again what was judged and not killed"
    )
    parser.add_argument("--check", action="store_true", help="only look whether patterns are found")
    parser.add_argument("--seconds", type=float, default=ENOUGH, help="of tests for one mutant")
    parser.add_argument("--nice", type=int, default=10, help="how much others go before")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant after these")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(arguments)
    listed = LISTS[options.list]
    names = [mutant.name for mutant in listed]
    assert len(set(names)) == len(names), "two mutants of one name"
    if options.results is None:
        options.results = RESULTS / (
            "results.json" if options.list == "seeded" else f"{options.list}.json"
        )
    parts = options.only or [""]
    chosen = [m for m in listed if any(part in m.name or part in m.symbol for part in parts)]
    known = {} if options.fresh or not options.results.exists() else _read(options.results)
    if options.survivors:
        chosen = [m for m in chosen if m.name in known and known[m.name]["outcome"] != KILLED]
    if options.sample is not None:
        chosen = random.Random(0).sample(chosen, min(options.sample, len(chosen)))
    if options.check:
        return _check(chosen)
    if options.score:
        return _summary([m for m in chosen if m.name in known], known)
    os.nice(options.nice)
    random.Random(0).shuffle(chosen)
    # Those that nobody has judged come first, then kills that were never confirmed.
    outcomes = {name: one["outcome"] for name, one in known.items()}
    chosen.sort(key=lambda m: (m.name in outcomes, outcomes.get(m.name) != DOUBTFUL))
    with Workshop() as workshop:
        # Of the files as they were copied: what is edited meanwhile is not what is judged.
        stamps = {mutant.name: _stamp(mutant) for mutant in chosen}
        # Of a run that was stopped before it confirmed them.
        stored = {name: known.get(name, {}) for name in stamps}
        waiting = [name for name, one in stored.items() if one.get("outcome") == DOUBTFUL]
        waiting = [name for name in waiting if stored[name]["stamp"] == stamps[name]]
        until = time.monotonic() + 60 * options.minutes
        for number, mutant in enumerate(chosen, 1):
            stamp = stamps[mutant.name]
            before = stored[mutant.name]
            settled = before.get("stamp") == stamp and before["outcome"] in (KILLED, SURVIVED)
            if mutant.name in waiting or (settled and not options.survivors):
                continue
            if time.monotonic() > until:
                break
            began = computed()
            outcome, said = _try(workshop, mutant, options.seconds)
            waiting += [mutant.name] * (outcome == KILLED)
            known[mutant.name] = {
                "outcome": DOUBTFUL if outcome == KILLED else outcome,
                "said": said,
                "stamp": stamp,
                "commit": _commit(),
                "date": datetime.date.today().isoformat(),
            }
            print(
                f"{number:3}/{len(chosen)} {outcome:9} {computed() - began:.1f} s {mutant.name}: {said}",
                flush=True,
            )
            if len(waiting) == TOGETHER:
                confirm(workshop, known, waiting)
            _write(options.results, {name: known[name] for name in names if name in known})
        confirm(workshop, known, waiting)
        _write(options.results, {name: known[name] for name in names if name in known})
    return _summary([m for m in chosen if m.name in known], known)


def _try(workshop: Workshop, mutant: Mutant, seconds: float) -> tuple[str, str]:
    """The outcome, of which a kill has yet to be confirmed, and what was said."""
    selection = shlex.split(mutant.tests)
    try:
        bug = bug_at(find(ROOT, mutant), mutant.new)
    except Gone as gone:
        return GONE, str(gone)
    # Those beside the code, then those that name it.
    found = workshop.tested(selection, bug, seconds=seconds)
    if found.code in (0, NONE):
        selection = list(dict.fromkeys([*related(bug.file), *workshop.passing_through(bug)]))
        found = workshop.tested(selection, bug, seconds=seconds)
    if found.code in (0, NONE):
        return SURVIVED, found.said
    if found.code not in FAILURES:
        return UNFIT, f"pytest ended with {found.code}: {found.said}"
    # An import that fails, or a loop without end, has no test of its own.
    if not found.failed and workshop.tested(selection, bug, seconds=seconds, without=True).code != 0:
        return UNFIT, f"{' '.join(selection)} fails without the bug, too"
    return KILLED, found.failed[0] if found.failed else found.said


def confirm(workshop: Workshop, known: dict[str, dict[str, str]], waiting: list[str]) -> None:
    """What failed with a bug must pass without it, or it says nothing about the bug."""
    tests = {name: known[name]["said"] for name in waiting}
    doubtful = workshop.failing(test for test in tests.values() if "::" in test)
    for name, test in tests.items():
        known[name]["outcome"] = UNFIT if test in doubtful else KILLED
    waiting.clear()


def computed() -> float:
    """Processor seconds of all runs of tests so far."""
    times = os.times()
    return times.children_user + times.children_system


def _check(chosen: list[Mutant]) -> int:
    lost = 0
    for mutant in chosen:
        try:
            find(ROOT, mutant)
        except Gone as gone:
            lost += 1
            print(f"{GONE}: {mutant.name}: {gone}")
    print(f"{len(chosen) - lost} of {len(chosen)} patterns are found")
    return 1 if lost else 0


def _summary(chosen: list[Mutant], known: dict[str, dict[str, str]]) -> int:
    outcomes = {m.name: known[m.name]["outcome"] for m in chosen}
    count = {kind: list(outcomes.values()).count(kind) for kind in (KILLED, SURVIVED, GONE, UNFIT)}
    explained = [m for m in chosen if outcomes[m.name] == SURVIVED and m.explained]
    for mutant in chosen:
        if outcomes[mutant.name] != KILLED:
            print(f"{outcomes[mutant.name]}: {mutant.name} ({mutant.symbol}). {mutant.breaks}.")
            print(f"    {mutant.explained or known[mutant.name]['said']}")
    for module, group in sorted(_by_module(chosen).items()):
        print(f"{module:18} {_score([outcomes[m.name] for m in group])}")
    older = sum(known[m.name]["stamp"] != _stamp(m) for m in chosen)
    print(f"{_score(list(outcomes.values()))}; {len(explained)} survivors explained")
    print(f"{older} judged before their file or its tests last changed; a run judges these anew")
    for kind, meaning in ((GONE, "the list is out of date"), (UNFIT, "their selections cannot judge")):
        if count[kind]:
            print(f"{count[kind]} not judged, {kind}: {meaning}")
    unexplained = count[SURVIVED] - len(explained)
    return 1 if unexplained or count[GONE] or count[UNFIT] else 0


def _by_module(mutants: list[Mutant]) -> dict[str, list[Mutant]]:
    """Mutants by the room they are put into."""
    groups: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault(_room(_file(mutant)), []).append(mutant)
    return groups


def _file(mutant: Mutant) -> Path | None:
    try:
        return find(ROOT, mutant).path
    except Gone:
        return None


def _room(path: Path | None) -> str:
    if path is None:
        return GONE
    below = next(ROOT / source for source in SOURCES if path.is_relative_to(ROOT / source))
    parts = path.relative_to(below).parts
    return parts[0] if below.name == "quietgrad" else below.name


def _score(outcomes: list[str]) -> str:
    killed, judged = outcomes.count(KILLED), sum(one in (KILLED, SURVIVED) for one in outcomes)
    return f"{killed} of {judged} killed, score {killed / max(judged, 1):.1%}"


def _stamp(mutant: Mutant) -> str:
    """What an outcome depends on, near enough: the mutant, its file, and the files of its selection."""
    parts = [repr(mutant)]
    tests = [word for word in mutant.tests.split() if word.endswith(".py")]
    for path in [_file(mutant), *(ROOT / name for name in tests)]:
        exists = path is not None and path.exists()
        parts.append(path.read_text(encoding="utf-8") if exists else "missing")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def _read(path: Path) -> dict[str, dict[str, str]]:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, known: dict[str, dict[str, str]]) -> None:
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
