"""The tests do not see what earlier runs left in the user's caches, and run on any day."""

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quietgrad._util.environment import cache_folder

SETTINGS = Path(__file__).parents[1] / "pyproject.toml"


def test_caches_are_of_this_process():
    from pytensor.configdefaults import config

    caches = Path(os.environ["QUIETGRAD_TEST_CACHES"])
    assert cache_folder().is_relative_to(caches)
    assert Path(str(config.compiledir)).is_relative_to(caches)


@pytest.mark.turns(2)
@pytest.mark.parametrize("days", [None, 1])
def test_pymc_is_imported_without_an_error(days, tmp_path):
    """At the first time on a machine and at the first of another day, when its ArviZ warns."""
    stamp, today = tmp_path / "arviz" / "daily_warning", datetime.date.today()
    if days is not None:
        stamp.parent.mkdir()
        stamp.write_text((today - datetime.timedelta(days)).isoformat())
    (tmp_path / "test_import.py").write_text("import pymc\n\n\ndef test_it():\n    assert pymc.Model\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-c", SETTINGS, "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    # It is stamped after the warning: without a stamp this ArviZ does not warn, and the filter can go.
    assert stamp.read_text() >= today.isoformat()
