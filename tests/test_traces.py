"""The two traces of docs/design.md name every file that the calls pass through, and no other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
SECTION = PAGE.split("### Two traces\n")[1].split("\n## ")[0]
FIT, STEP = re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)
TOOLS = ("_util/", "_numerics/")


@pytest.mark.slow
@pytest.mark.parametrize(("call", "drawn"), [("full_rank", FIT), ("step", STEP)])
def test_the_files_of_a_trace_are_drawn(call, drawn, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    tracing = pytest.importorskip("tools.trace_files", reason="the tools are not part of a package")
    files = {name for name in getattr(tracing, call)() if not name.startswith(TOOLS)}
    # Some stand below a folder that is named before them.
    named = re.findall(r"[\w/]+\.py", drawn)
    assert {name for name in files if not any(name.endswith(one) for one in named)} == set()
    assert [one for one in named if not any(name.endswith(one) for name in files)] == []
    count = re.search(
        rf"\((\d+) files, and \d+ of the two rooms of tools\):\n\n```text\n{re.escape(drawn)}", SECTION
    )
    assert count is not None
    assert int(count[1]) == len(files)
