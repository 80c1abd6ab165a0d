"""Seeded bugs survive refactoring: every one of them still has its place in the sources."""

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
    from tools.mutations.operators import COUNT, ROOMS, Place, sample

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
