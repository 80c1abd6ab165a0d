"""Where a seeded bug goes: symbols by AST, wherever they are, and patterns by Python's tokens."""

import ast
import functools
import io
import itertools
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .mutant import Mutant

# Sources that bugs are put into, below the root of the project.
SOURCES = ("src/quietgrad", "reproduction/paper")
# Tokens that are layout and no code.
LAYOUT = (
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.COMMENT, tokenize.ENDMARKER, tokenize.ENCODING),
)


class Gone(Exception):
    """The pattern of a mutant is not in its symbol, or more than once: the list is out of date."""


class Symbol(NamedTuple):
    """A class, function, method or constant: its file and the lines from first to last."""

    path: Path
    first: int
    last: int


class Token(NamedTuple):
    """A token's text and where it starts and ends: lines from 1, columns from 0."""

    text: str
    start: tuple[int, int]
    end: tuple[int, int]


class Place(NamedTuple):
    """The one place of a pattern: a file, and the characters from `start` to `end` of its text."""

    path: Path
    text: str
    start: int
    end: int

    def broken(self, new: str) -> str:
        """The text with the bug in it."""
        # The pattern's own layout at its ends is no part of the place.
        return self.text[: self.start] + new.strip() + self.text[self.end :]


def find(root: Path, mutant: Mutant) -> Place:
    """The place of a mutant below `root`, or `Gone`."""
    symbols = index(root).get(mutant.symbol, ())
    if not symbols:
        raise Gone(f"there is no {mutant.symbol}")
    wanted = [token.text for token in tokens(mutant.old)]
    places = [place for symbol in symbols for place in _matches(symbol, wanted)]
    if len(places) != 1:
        raise Gone(f"its pattern stands {len(places)} times in {mutant.symbol}, not once")
    return places[0]


@functools.lru_cache(maxsize=4)
def index(root: Path) -> dict[str, list[Symbol]]:
    """All symbols by their qualified names, and by the ends of these: `apply`, `Ridge.apply`."""
    found: dict[str, list[Symbol]] = {}
    for path in itertools.chain.from_iterable(sorted((root / s).rglob("*.py")) for s in SOURCES):
        for name, node in _named(ast.parse(path.read_text(encoding="utf-8")), ()):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            symbol = Symbol(path, first, node.end_lineno or first)
            for start in range(len(name)):
                found.setdefault(".".join(name[start:]), []).append(symbol)
    return found


def _named(node: ast.AST, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        names: list[str] = []
        match child:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names = [child.name]
            case ast.Assign() if not isinstance(node, ast.FunctionDef):
                names = [
                    each.id
                    for target in child.targets
                    for each in ast.walk(target)
                    if isinstance(each, ast.Name)
                ]
            case ast.AnnAssign(target=ast.Name(id=name)) if not isinstance(node, ast.FunctionDef):
                names = [name]
        for name in names:
            assert isinstance(child, ast.stmt)
            yield (*above, name), child
        yield from _named(child, (*above, *names[:1]) if len(names) == 1 else above)


def tokens(text: str, first: int = 1) -> list[Token]:
    """The tokens that are code; a fragment may end anywhere."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in LAYOUT and token.string.strip():
                (row, column), (end_row, end_column) = token.start, token.end
                found.append(
                    Token(token.string, (row + first - 1, column), (end_row + first - 1, end_column))
                )
    except (tokenize.TokenError, IndentationError):
        pass
    return found


@functools.lru_cache(maxsize=512)
def _tokens_of(path: Path) -> tuple[str, list[Token]]:
    text = path.read_text(encoding="utf-8")
    return text, tokens(text)


def _matches(symbol: Symbol, wanted: Sequence[str]) -> Iterator[Place]:
    text, every = _tokens_of(symbol.path)
    inside = [t for t in every if symbol.first <= t.start[0] <= symbol.last]
    lines = list(itertools.accumulate((len(line) for line in text.splitlines(keepends=True)), initial=0))
    # A trailing comma comes and goes with line breaks: it is not compared.
    for start in range(len(inside)):
        end = _end(inside, start, wanted)
        if end is not None:
            (row, column), (end_row, end_column) = inside[start].start, inside[end].end
            yield Place(symbol.path, text, lines[row - 1] + column, lines[end_row - 1] + end_column)


def _end(inside: Sequence[Token], start: int, wanted: Sequence[str]) -> int | None:
    """The last token of a match that begins at `start`."""
    place = start
    for number, text in enumerate(wanted):
        if place >= len(inside):
            return None
        closes = place + 1 < len(inside) and inside[place + 1].text in ")]}"
        if inside[place].text == "," and text != "," and closes and number:
            place += 1
        if inside[place].text != text:
            return None
        place += 1
    return place - 1
