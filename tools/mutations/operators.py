"""Mutants that nobody chose: operators of Python, applied by AST to places drawn at random.

    python -m tools.mutations.operators                   640 mutants, or those that are left of them
    python -m tools.mutations.operators --count 50        fewer; the first 50 of the same 640
    python -m tools.mutations.operators --only solvers    those of one room
    python -m tools.mutations.operators --list            the mutants, without running a test
    python -m tools.mutations.operators --survivors       those that were judged and not killed, again
    python -m tools.mutations.operators --score           the score of what is stored, by room

One mutant is one change: + for -, * for /, < for <=, < for >, and for or, a constant one off, an axis 0
for 1, a condition turned, an argument swapped with the next, a minus dropped. Rooms are sampled by their
number of places. A mutant is known by its file, symbol and texts, and drawn by a hash of these: code
that changes takes a few mutants away and brings a few others, and the rest stays the same sample in the
same order. Each is judged by the few files of tests that name most of what its file defines, those of
its room first, and by those that are known to pass through its block (`touched.py`), at most some
processor seconds of them. Outcomes are stored one by one, so that a run goes on where it was stopped.
What other tests would see is counted as a survivor: the score is a lower bound. What no test could see
is in `equivalent.json` with its reason; the score is printed with these as survivors and without them.
"""

import argparse
import ast
import collections
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .__main__ import DOUBTFUL, KILLED, SURVIVED, TOGETHER, computed, confirm
from .finding import Place
from .related import ROOMS, related
from .workshop import NONE, ROOT, Workshop, bug_at

RESULTS = ROOT / "tools" / "mutations" / "operators.json"
# By the name of a mutant: why no test can see it.
EQUIVALENT = ROOT / "tools" / "mutations" / "equivalent.json"
COUNT, SEED = 640, 20261118
# Processor seconds of tests for one mutant, by what they took before.
ENOUGH = 7.0
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.Lt,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


# The first two arguments may be swapped: `clip` takes the larger of them, and then the lesser.
COMMUTE = {
    "min",
    "max",
    "minimum",
    "maximum",
    "fmin",
    "fmax",
    "hypot",
    "logaddexp",
    "add",
    "multiply",
    "clip",
}


class Change(NamedTuple):
    """One expression of a file and what takes its place.

    `symbol` is the function or class that it is in, and `number` tells it from others of the same texts.
    """

    room: str
    file: str
    symbol: str
    number: int
    start: int
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """What it is known by in the file of outcomes."""
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{_known_by(self.file, self.symbol, self.old, self.new)}{again}"


def _known_by(file: str, symbol: str, *texts: str) -> str:
    old, new = (" ".join(text.split())[:60] for text in texts)
    return f"{file}:{symbol}: {old} -> {new}"


def changes(room: str) -> Iterator[Change]:
    """All mutants of a room, in the order of its files."""
    folder = ROOT / "src" / "quietgrad" / room
    for path in sorted(folder.rglob("*.py")):
        text, file = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        tree, lines = ast.parse(text), _line_starts(text)
        skipped, counts = _annotations(tree), collections.Counter[str]()
        for symbol, node in _expressions(tree, ""):
            if id(node) in skipped:
                continue
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            for new in _mutated(node):
                start = _offset(text, lines, node.lineno, node.col_offset)
                end = _offset(text, lines, node.end_lineno, node.end_col_offset)
                old = text[start:end]
                if new != ast.unparse(node):
                    counts[known_by := _known_by(file, symbol, old, f"({new})")] += 1
                    yield Change(room, file, symbol, counts[known_by], start, end, old, f"({new})")


def _expressions(node: ast.AST, symbol: str) -> Iterator[tuple[str, ast.expr]]:
    """All expressions below a node, from top to bottom, with the symbol that each is in."""
    for child in ast.iter_child_nodes(node):
        within = symbol
        match child:
            case ast.expr():
                yield symbol, child
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                within = f"{symbol}.{name}".lstrip(".")
        yield from _expressions(child, within)


def _mutated(node: ast.expr) -> Iterator[str]:
    """The expression with one operator applied to it, not to its parts."""
    match node:
        case ast.BinOp(op=op) if type(op) in SWAPS and not _text(node.left) and not _text(node.right):
            yield _unparsed(node, op=SWAPS[type(op)]())
        case ast.BoolOp(op=op):
            yield _unparsed(node, op=SWAPS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield _unparsed(node, ops=[SWAPS[type(op)]()])
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield ast.unparse(node.operand)
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() as value):
            yield repr(1 - value if value in (0, 1) else value + 1)
        case ast.Constant(value=float() as value):
            yield repr(value * 2 if value else 1.0)
        case ast.Call(args=[first, second, *rest], func=called) if not isinstance(first, ast.Starred):
            if not isinstance(second, ast.Starred) and ast.unparse(called).split(".")[-1] not in COMMUTE:
                yield _unparsed(node, args=[second, first, *rest])


def _unparsed(node: ast.expr, **fields: object) -> str:
    given = {name: getattr(node, name) for name in node._fields}
    return ast.unparse(ast.fix_missing_locations(type(node)(**{**given, **fields})))


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _annotations(tree: ast.AST) -> set[int]:
    """Expressions that compute nothing: annotations, decorators, messages, and checks of lengths."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.arg():
                parts = [node.annotation]
            case ast.AnnAssign():
                parts = [node.annotation]
            case ast.FunctionDef():
                parts = [node.returns, *node.decorator_list]
            case ast.ClassDef():
                parts = [*node.decorator_list, *node.bases]
            case ast.Raise() | ast.Assert() | ast.JoinedStr():
                parts = [node]
            case ast.Call(func=ast.Name(id="zip"), keywords=keywords):
                parts = [keyword.value for keyword in keywords]
        skipped |= {id(each) for part in parts if part is not None for each in ast.walk(part)}
    return skipped


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(text: str, lines: list[int], row: int, column: int) -> int:
    """Where a position of the AST is: columns are counted in bytes there."""
    begin = lines[row - 1]
    line = text[begin : lines[row]] if row < len(lines) else text[begin:]
    return begin + len(line.encode()[:column].decode())


def sample(count: int = COUNT) -> list[Change]:
    """The first `count` of the mutants, in a random order of their own."""
    every = [change for room in ROOMS for change in changes(room)]
    return sorted(every, key=lambda change: _hash(f"{SEED}:{change.name}"))[: min(count, COUNT)]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutations.operators", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--only", action="append", default=[], choices=ROOMS, help="a room")
    parser.add_argument("--list", action="store_true", help="print them and run nothing")
    parser.add_argument("--score", action="store_true", help="only print what is known")
    parser.add_argument(
        "--survivors", action="store_true", help="judge again what was judged and not killed"
    )
    parser.add_argument("--seconds", type=float, default=ENOUGH, help="of tests for one mutant")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant after these")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    chosen = [c for c in sample(options.count) if not options.only or c.room in options.only]
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    if options.survivors:
        chosen = [c for c in chosen if known.get(c.name, {}).get("outcome") == SURVIVED]
        chosen = [c for c in chosen if c.name not in _equivalent()]
    if options.list:
        print("\n".join(f"{c.room}: {c.name}" for c in chosen))
        return 0
    if not options.score:
        os.nice(10)
        until = time.monotonic() + 60 * options.minutes
        _run(chosen, known, options.results, until, again=options.survivors, seconds=options.seconds)
    return _score(chosen, known)


def _run(
    chosen: list[Change],
    known: dict[str, dict[str, str]],
    path: Path,
    until: float,
    *,
    again: bool,
    seconds: float,
) -> None:
    with Workshop() as workshop:
        stamps = {change.name: _stamp(change) for change in chosen}
        # Of a run that was stopped before it confirmed them.
        stored = {name: known.get(name, {}) for name in stamps}
        waiting = [name for name, one in stored.items() if one.get("outcome") == DOUBTFUL]
        waiting = [name for name in waiting if stored[name]["stamp"] == stamps[name]]
        # Those that nobody has judged come first, and of them those that need no process of their own.
        first = sorted(chosen, key=lambda c: (c.name in known, not _within_function(c)))
        for number, change in enumerate(first, 1):
            judged = _is_judged(stored[change.name], stamps[change.name])
            if change.name in waiting or (judged and not again):
                continue
            if time.monotonic() > until:
                break
            text = (ROOT / change.file).read_text(encoding="utf-8")
            bug = bug_at(Place(ROOT / change.file, text, change.start, change.end), change.new)
            began = computed()
            selection = list(dict.fromkeys([*related(change.file), *workshop.passing_through(bug)]))
            found = workshop.tested(selection, bug, seconds=seconds)
            if found.code < -1:
                continue
            survived = found.code in (0, NONE)
            if not survived and not found.failed:
                # An import that fails, or a loop without end, has no test of its own.
                without = workshop.tested(selection, bug, seconds=seconds, without=True)
                if without.code != 0:
                    continue
            said = found.failed[0] if found.failed else found.said
            known[change.name] = {
                "outcome": SURVIVED if survived else DOUBTFUL,
                "room": change.room,
                "stamp": stamps[change.name],
                "said": said,
            }
            waiting += [change.name] * (not survived)
            print(
                f"{number:3}/{len(chosen)} {computed() - began:.1f} s {change.name}: {said}", flush=True
            )
            if len(waiting) >= TOGETHER:
                confirm(workshop, known, waiting)
            path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        confirm(workshop, known, waiting)
        path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _within_function(change: Change) -> bool:
    """Whether it is in the body of a function, whose code can be replaced in place."""
    text = (ROOT / change.file).read_text(encoding="utf-8")
    line = text.count("\n", 0, change.start) + 1
    return any(
        isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= (node.end_lineno or line)
        for node in ast.walk(ast.parse(text))
    )


def _equivalent() -> dict[str, str]:
    return json.loads(EQUIVALENT.read_text(encoding="utf-8"))


def _is_judged(before: dict[str, str], stamp: str) -> bool:
    return before.get("stamp") == stamp and before["outcome"] in (KILLED, SURVIVED)


def _score(chosen: list[Change], known: dict[str, dict[str, str]]) -> int:
    judged = [c for c in chosen if known.get(c.name, {}).get("outcome") in (KILLED, SURVIVED)]
    outcome, same = {c.name: known[c.name]["outcome"] for c in judged}, _equivalent()
    for name, how in outcome.items():
        if how == SURVIVED:
            print(f"survived: {name}" + (f"\n    equivalent: {same[name]}" if name in same else ""))
    for room in ROOMS:
        own = [outcome[c.name] for c in judged if c.room == room]
        if own:
            print(f"{room:14} {own.count(KILLED)} of {len(own)} killed")
    print(f"{_share(list(outcome.values()))}; {len(chosen)} drawn at random")
    different = [how for name, how in outcome.items() if name not in same or how == KILLED]
    print(f"{_share(different)} without {len(outcome) - len(different)} equivalent ones")
    older = sum(known[c.name]["stamp"] != _stamp(c) for c in judged)
    print(f"{older} judged before their file last changed")
    return 0


def _share(outcomes: list[str]) -> str:
    killed, count = outcomes.count(KILLED), len(outcomes)
    share = killed / max(1, count)
    # Of a random sample: one standard error.
    error = (share * (1 - share) / max(1, count)) ** 0.5
    return f"{killed} of {count} killed, {share:.1%} +- {error:.1%}"


def _stamp(change: Change) -> str:
    text = (ROOT / change.file).read_text(encoding="utf-8")
    return _hash(f"{change.name}\0{text}")[:16]


if __name__ == "__main__":
    sys.exit(main())
