"""The published study: page and figures from the cells in `reproduction/`, with and without a clock."""

import re
import shutil
from pathlib import Path

import pytest

from quietgrad import report
from quietgrad.report.stored_study import load
from quietgrad.study.store import Store, studies
from quietgrad.study.timing import StepTime, Timing, configurations, write_timing

FOLDER = Path(__file__).parents[2] / "reproduction"
MOST_BYTES = 10_000


# A figure takes as long as the others of its kind: one model and family stand for all.
@pytest.fixture(scope="module", params=["*frisk-mean-field*", pytest.param("*", marks=pytest.mark.slow)])
def copy(request, tmp_path_factory):
    """The results, or some of them, without what a report adds."""
    folder = tmp_path_factory.mktemp("reproduction")
    (folder / "cells").mkdir()
    for cell in (FOLDER / "cells").glob(request.param):
        shutil.copy(cell, folder / "cells")
    shutil.copy(FOLDER / "manifest.json", folder)
    return folder


def test_cells_are_small_and_say_where_they_come_from():
    sizes = [path.stat().st_size for path in (FOLDER / "cells").glob("*.parquet")]
    assert len(sizes) >= 45
    assert sum(sizes) / len(sizes) < MOST_BYTES
    commits = {record.environment["commit"] for record in Store(FOLDER).read_all()}
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in commits)
    text = (FOLDER / "manifest.json").read_text(encoding="utf-8")
    assert all("reproduction/" in each["command"] for each in studies(Store(FOLDER).manifest()))
    assert not re.search(r'"/|: /|~/', text)


def test_page_and_figures_with_a_timing_pass(copy, tmp_path):
    before = load(copy)
    untimed = [record for record in before.main if not record.cell.ends_itself]
    assert not load(copy).timed or len(untimed) < len(before.main)
    # As if a step of every configuration took 20 to 22 microseconds.
    cells = configurations(planned.cell for planned in Store(copy).planned())
    times = tuple(StepTime(cell, (20e-6, 21e-6, 22e-6), 100) for cell in cells)
    write_timing(copy, Timing("2026-01-02T03:04:05+00:00", {"commit": "0" * 40}, 0.1, times))
    page = report.build(copy, out=tmp_path).read_text(encoding="utf-8")
    assert "measured apart in 3 interleaved rounds" in page
    assert "zvcv-gd order 2" in page
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    for kind in ("elbo-time-mean-field-median", "variance-ratio-mean-field-mean", "ablation-order"):
        assert {f"{kind}.png", f"{kind}.svg"} <= figures
    assert all(path.stat().st_size < 1_000_000 for path in (tmp_path / "figures").iterdir())
    # Steps times the seconds of a step.
    steps = next(record.cell.steps for record in load(copy).main if record.cell.steps)
    assert f"{steps * 21e-6:.2f}" in page
