"""The pages do what they say: Python blocks are run, commands are understood, names and links exist.

The blocks of a page are executed from top to bottom in one namespace, in an empty folder. A line
`# -> text` is what the block prints. A block below `<!-- not run: reason -->` is only compiled.
"""

import importlib
import os
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quietgrad
from quietgrad import families, methods, tasks
from quietgrad.cli import app
from quietgrad.estimators import REGISTRY as ESTIMATORS
from quietgrad.study import read_spec

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?(?P<indent> *)```(?P<language>\w+)[^\n]*\n"
    r"(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
PROMISE = re.compile(r"^\s*# -> (.*)$", re.MULTILINE)
# Commands that take no time; they are run, the others are only parsed.
QUICK = (["list"], ["info"], ["study", "list"], ["--help"], ["--version"])


class Block(NamedTuple):
    """A fenced block: its language, text, first line, and why it is not run, if it is not."""

    language: str
    text: str
    line: int
    reason: str | None


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text()
    return [
        Block(m["language"], m["body"], text[: m.start("body")].count("\n"), m["reason"])
        for m in FENCE.finditer(text)
        if m["language"] in languages
    ]


def shell_lines(block: Block) -> list[str]:
    """What is typed: after `$ ` in a console block, everything in a script; continuations joined."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return text.splitlines()


def commands(page: Path) -> list[list[str]]:
    """The arguments of every call of quietgrad in the page's shell blocks."""
    found = []
    for block in blocks(page, "console", "bash"):
        for line in shell_lines(block):
            for part in re.split(r"&&|\|\||;|\|", line):
                if re.match(r"\s*(\S+/)?quietgrad\b", part):
                    found.append(shlex.split(part, comments=True)[1:])
    return found


def with_content(find: Any) -> Any:
    chosen = [page for page in PAGES if find(page)]
    return pytest.mark.parametrize("page", chosen, ids=lambda p: str(p.relative_to(ROOT)))


@with_content(lambda page: blocks(page, "python"))
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page, "python"):
        # Blank lines in front, so that a traceback shows the page's own line numbers.
        code = compile("\n" * block.line + block.text, str(page), "exec")
        if block.reason is not None:
            continue
        exec(code, namespace)
        printed = iter(capsys.readouterr().out.splitlines())
        for promised in PROMISE.findall(block.text):
            assert promised in printed, f"{page.name}:{block.line} does not print {promised!r}"


@with_content(commands)
def test_commands_are_understood(page, capsys):
    for words in commands(page):
        if words in QUICK:
            assert app(words, exit_on_error=False, result_action="return_value") in (0, None)
            continue
        called, bound, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
        check_names(called.__name__, bound.arguments)


def check_names(command: str, given: dict[str, Any]) -> None:
    """The names among the arguments are registered; files are the reader's own."""
    registries = {
        "family": {**families.REGISTRY, "auto": None},
        "method": methods.REGISTRY,
        "estimator": {**ESTIMATORS, "auto": None},
        "task": tasks.REGISTRY,
    }
    for option, registry in registries.items():
        assert given.get(option) is None or given[option] in registry
    model, spec = given.get("model"), given.get("spec")
    assert model is None or model in tasks.REGISTRY or re.fullmatch(r"\w+\.py:\w+", model)
    if command == "run_study" and not str(spec).endswith(".toml"):
        assert read_spec.load(str(spec)).name == spec


@with_content(lambda page: re.search(r"`quietgrad [a-z]", page.read_text()))
def test_commands_in_sentences_exist(page):
    for first in re.findall(r"`quietgrad ([a-z]+)", page.read_text()):
        assert first in app


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in link:
            assert os.path.exists(page.parent / link), f"{page.name} links to {link}"


API = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", API)
def test_api_lists_what_exists(name):
    package, _, rest = name.partition(".")
    thing = importlib.import_module(package)
    for part in rest.split("."):
        if not hasattr(thing, part):
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)


def test_api_lists_every_public_name():
    listed = {name.rpartition(".")[2] for name in API}
    assert set(quietgrad.__all__) - listed == {"__version__"}


def test_a_promise_can_fail(tmp_path):
    """Blocks are found with their lines, reasons and promises; a page without them would pass."""
    page = tmp_path / "page.md"
    page.write_text(
        "Words.\n\n```python\nprint(1)\n# -> 2\n```\n\n<!-- not run: why -->\n```python\n1 +\n```\n"
    )
    first, second = blocks(page, "python")
    assert (first.line, first.reason, second.reason) == (3, None, "why")
    assert PROMISE.findall(first.text) == ["2"]
    assert all(blocks(ROOT / name, "python") for name in ("README.md", "docs/getting-started.md"))
