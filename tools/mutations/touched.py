"""Which tests pass through which block of code, and how long they take: learned from run to run.

The sources of the copy get a call at the start of every block of every function (a body, a branch, a
loop). Every run of tests in it then says which blocks each test passed through, and what it took. A
mutant is judged by tests that failed for its neighbours, then by those that are known to pass through
its block, then by those that nobody has seen yet: these that name its function, class or module first,
and different functions before the other cases of one. A jitted function that an
earlier test of the same process has traced is not passed through again, so the map has gaps: in rooms
of such functions all other tests of the selection follow. It is a cache beside this file, not a
result.
"""

import ast
import builtins
import collections
import inspect
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

MAP = Path(__file__).with_name("touched.json")
# Seconds that a test counts which nobody has seen yet, those below which a test that failed for another
# mutant goes first, and how many of these there are.
UNSEEN, QUICK, KILLERS = 0.5, 3.0, 6
HIT = "__hit__"
TRACED = tuple(f"src/quietgrad/{room}/" for room in ("families", "estimators", "targets", "energy"))
SOURCE = "src/quietgrad"


class Block(NamedTuple):
    """Statements that run one after the other: a file and the lines from first to last."""

    file: str
    first: int
    last: int


def instrumented(text: str, file: str, number: int) -> tuple[str, list[Block]]:
    """A module with calls in it, numbered from `number` on, and its blocks in their order."""
    tree, blocks = ast.parse(text), []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for body in _bodies(function):
                call = ast.parse(f"{HIT}({number + len(blocks)})").body
                blocks.append(Block(file, body[0].lineno, body[-1].end_lineno or body[-1].lineno))
                is_docstring = body is function.body and ast.get_docstring(function) is not None
                body[is_docstring:is_docstring] = call
    return ast.unparse(ast.fix_missing_locations(tree)), blocks


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Lists of statements below a node, but not those of functions and classes within."""
    for _, value in ast.iter_fields(node):
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], ast.stmt):
            yield value
        for each in value:
            if isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case):
                if not isinstance(each, ast.FunctionDef | ast.ClassDef):
                    yield from _bodies(each)


def instrument(root: Path) -> list[Block]:
    """Put the calls into a copy; all blocks of its package, by number."""
    found: list[Block] = []
    for path in sorted((root / SOURCE).rglob("*.py")):
        file = str(path.relative_to(root))
        text, own = instrumented(path.read_text(encoding="utf-8"), file, len(found))
        found += own
        if path == root / SOURCE / "__init__.py":
            text = silent(text)
        path.write_text(text, encoding="utf-8")
    return found


def silent(text: str) -> str:
    """The package's own file: processes that tests start write no map."""
    first = f"import builtins\nif not hasattr(builtins, '{HIT}'): builtins.{HIT} = lambda number: None\n"
    tree = ast.parse(text)
    tree.body[1:1] = ast.parse(first).body
    return ast.unparse(tree)


class Recorder:
    """A plugin of pytest: writes a line for every test that passes."""

    def __init__(self, path: Path):
        self._path, self._hits = path, set[int]()
        setattr(builtins, HIT, self._hits.add)
        self._began, self._passed = 0.0, True

    def pytest_runtest_logstart(self) -> None:
        self._began, self._passed = time.process_time(), True
        self._hits.clear()

    def pytest_runtest_logreport(self, report) -> None:
        self._passed = self._passed and report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        seconds = round(time.process_time() - self._began, 3)
        line = [nodeid, seconds, sorted(self._hits), self._passed]
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Touched:
    """The map as it is known so far."""

    def __init__(self, path: Path = MAP):
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._path = path
        # By test: its seconds, and the blocks it passes through, by file and first line.
        self.tests: dict[str, tuple[float, list[str]]] = stored.get("tests", {})
        # By file of the package: tests that have failed for a mutant in it.
        self.killers: dict[str, list[str]] = stored.get("killers", {})

    def add(self, lines: Iterable[str], known: Sequence[Block]) -> set[str]:
        """What a run has recorded; the tests that passed."""
        names = set()
        for line in lines:
            name, seconds, hits, passed = json.loads(line)
            if passed:
                names.add(name)
                at = [f"{known[hit].file}:{known[hit].first}" for hit in hits]
                before = self.tests.get(name, (seconds, []))
                self.tests[name] = min(seconds, before[0]), sorted({*at, *before[1]})
        return names

    def through(self, file: str, block: Block) -> list[str]:
        """The tests that are known to pass through a block, the quickest first."""
        place = f"{file}:{block.first}"
        found = [(seconds, name) for name, (seconds, hits) in self.tests.items() if place in hits]
        return [name for _, name in sorted(found)]

    def killed(self, file: str, test: str) -> None:
        """A test has failed for a mutant in a file."""
        self.killers[file] = [test, *(t for t in self.killers.get(file, []) if t != test)]

    def save(self) -> None:
        """All of it, beside this file."""
        self._path.write_text(json.dumps({"tests": self.tests, "killers": self.killers}) + "\n")

    def rank(self, test: str, file: str, block: Block | None) -> tuple[int, float] | None:
        """When a test has its turn for a mutant in a block of a file; None if it passes by.

        Without a block (code outside of functions) it is any test that passes through the file. A test
        that passes by a function may use it nevertheless if another one had it traced: it comes last.
        """
        seconds, hits = self.tests.get(test, (UNSEEN, None))
        if test in self.killers.get(file, [])[:KILLERS] and seconds < QUICK:
            return 0, self.killers[file].index(test)
        if hits is None:
            return 2, seconds
        inside = f"{file}:" if block is None else f"{file}:{block.first}"
        if any(hit == inside or (block is None and hit.startswith(inside)) for hit in hits):
            return 1, seconds
        return (3, seconds) if file.startswith(TRACED) else None


class Turns:
    """A plugin of pytest: orders tests by their ranks, and begins none after some processor seconds.

    `names` are those of what the bug is in: its module, class and function.
    """

    def __init__(
        self, touched: Touched, file: str, block: Block | None, names: Sequence[str], seconds: float
    ):
        self._touched, self._place, self._seconds = touched, (file, block), seconds
        self._names = [_plain(name) for name in names]
        self._began = math.inf

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        cases, texts = collections.Counter[str](), dict[str, str]()
        order = []
        for number, item in enumerate(items):
            rank = self._touched.rank(item.nodeid, *self._place)
            if rank is None:
                continue
            function = item.nodeid.partition("[")[0]
            if function not in texts:
                texts[function] = _plain(_source(item))
            if item.path.name not in texts:
                texts[item.path.name] = _plain(item.path.read_text(encoding="utf-8"))
            texts[""] = texts[function] + _plain(item.nodeid)
            own, around = (sum(n in texts[k] for n in self._names) for k in ("", item.path.name))
            seen = item.nodeid in self._touched.tests
            unseen = (0, 0, 0) if seen else (-own, -around, cases[function])
            cases[function] += 1
            order.append((rank[0], unseen, rank[1], number))
        items[:] = [items[number] for *_, number in sorted(order)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """True: there is nothing left to do for this test."""
        self._began = min(self._began, time.process_time())
        took = self._touched.tests.get(item.nodeid, (0.0,))[0]
        over = time.process_time() - self._began > self._seconds or took > self._seconds
        return True if over else None


def _plain(text: str) -> str:
    """Without what names and the labels of cases are written with: `low-rank`, `low_rank`, `LowRank`."""
    return text.lower().replace("_", "").replace("-", "")


def _source(item: pytest.Item) -> str:
    try:
        return inspect.getsource(getattr(item, "function", object))
    except (OSError, TypeError):
        return ""


def names_at(text: str, file: str, line: int) -> list[str]:
    """Of the module, and of the classes and functions that a line is in."""
    inside = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return [Path(file).stem, *inside]


def innermost(known: Iterable[Block], file: str, line: int) -> Block | None:
    """The smallest block that has a line."""
    inside = [b for b in known if b.file == file and b.first <= line <= b.last]
    return min(inside, key=lambda block: block.last - block.first, default=None)
