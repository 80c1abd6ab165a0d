"""Seeded bugs survive refactoring: every one of them still has its place in the sources."""

import gc
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lists(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return pytest.importorskip("tools.mutations", reason="the tools are not part of a package")


@pytest.mark.slow
def test_every_seeded_bug_has_its_place(lists):
    from tools.mutations.finding import Gone, find

    lost = []
    for mutants in lists.LISTS.values():
        assert len({mutant.name for mutant in mutants}) == len(mutants)
        for mutant in mutants:
            assert mutant.old != mutant.new
            files = [word for word in mutant.tests.split() if word.startswith("tests/")]
            assert all((ROOT / file.partition("::")[0]).exists() for file in files), mutant.tests
            try:
                broken = find(ROOT, mutant).broken(mutant.new)
            except Gone as gone:
                lost.append(f"{mutant.name}: {gone}")
            else:
                compile(broken, mutant.symbol, "exec")
    assert lost == [], "let their symbols and patterns follow the code"


def test_a_place_is_found_by_tokens_and_not_by_layout(lists, tmp_path):
    from tools.mutations.finding import Gone, find
    from tools.mutations.mutant import Mutant

    source = tmp_path / "src" / "quietgrad" / "anywhere"
    source.mkdir(parents=True)
    (source / "a.py").write_text(
        "class A:\n    def f(self, x):\n        # why\n"
        "        return g(\n            x,\n            2,\n        )\n"
        "class B:\n    def f(self, x):\n        return g(x, 2)\n\nLIMIT = 3\n"
    )

    def place(symbol, old, new="0"):
        return find(tmp_path, Mutant("name", symbol, old, new, "", ""))

    assert place("A.f", "g(x, 2)").broken("h(x)").count("h(x)") == 1
    assert "return h\n" in place("B.f", "g(x, 2)").broken("h")
    assert "LIMIT = 4" in place("LIMIT", "LIMIT = 3").broken("LIMIT = 4")
    for symbol, old in (("f", "g(x, 2)"), ("A.f", "g(x, 3)"), ("C.f", "g")):
        with pytest.raises(Gone):
            place(symbol, old)


def test_the_workshop_has_every_room(lists, tmp_path):
    """A room that has the name of ignored results was left out once, and every selection failed."""
    from tools.mutations.workshop import copy

    copy(tmp_path)
    for folder in ("src", "tests"):
        here, there = ({p.relative_to(r) for p in (r / folder).rglob("*.py")} for r in (ROOT, tmp_path))
        assert here == there


def test_operator_mutants_are_python_and_differ(lists):
    from tools.mutations.operators import COUNT, Place, sample
    from tools.mutations.related import ROOMS

    drawn = sample()
    assert len(drawn) == COUNT
    assert {change.room for change in drawn} == set(ROOMS)
    assert all((ROOT / test).exists() for tests in ROOMS.values() for test in tests.split())
    for change in drawn[:100]:
        path = ROOT / change.file
        text = path.read_text()
        assert text[change.start : change.end] == change.old
        broken = Place(path, text, change.start, change.end).broken(change.new)
        assert compile(broken, change.file, "exec") != compile(text, change.file, "exec")


SOURCE = """
def f(x):
    \"\"\"Words.\"\"\"
    if x > 1:
        return x + 1
    return [x * y for y in (1, 2)]

class A:
    field = 3

    def g(self, x):
        return f(x) - self.field
"""


def test_blocks_of_functions_are_counted_as_they_are_passed_through(lists):
    from tools.mutations.touched import HIT, innermost, instrumented

    text, blocks = instrumented(SOURCE, "a.py", 10)
    hits = []
    names = {HIT: hits.append}
    exec(compile(text, "a.py", "exec"), names)
    assert names["f"](0) == [0, 0]
    assert names["f"].__doc__ == "Words."
    inside = {number: block for number, block in enumerate(blocks, 10)}
    branch = innermost(blocks, "a.py", 5)
    assert innermost(blocks, "a.py", 9) is None
    assert [inside[hit] for hit in hits] == [innermost(blocks, "a.py", 6)]
    assert names["A"]().g(2) == 0
    assert inside[hits[-1]] == branch


@pytest.mark.parametrize(
    ("old", "new", "enough", "value"),
    [
        ("x + 1", "x - 1", True, 1 - 3),
        ("x * y", "x + y", True, 3 - 3),
        ("- self.field", "+ self.field", True, 3 + 3),
        ("field = 3", "field = 4", False, 3 - 3),
        ("x > 1", "x\\\n > 2", True, [2, 4]),
    ],
)
def test_code_is_replaced_in_functions_and_nowhere_else(
    lists, old, new, enough, value, tmp_path, monkeypatch
):
    import importlib

    from tools.mutations import preloaded

    (tmp_path / "mutated.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(preloaded, "PACKAGE", "mutated")
    module = importlib.import_module("mutated")
    kept, method = module.f, module.A().g
    try:
        changed = SOURCE.replace(old, new)
        assert changed != SOURCE
        assert preloaded.replace_code(tmp_path / "mutated.py", SOURCE, changed) is enough
        if isinstance(value, list):
            assert kept(2) == value
        elif "y" in new:
            assert kept(1) == [2, 3]
        else:
            assert method(2) == value
    finally:
        del sys.modules["mutated"]
        gc.freeze()  # as conftest.py has it
