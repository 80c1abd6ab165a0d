"""Where a result was made: the commit of the checkout that the package is imported from."""

import subprocess
from pathlib import Path

import pytest

from quietgrad._util.environment import commit

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_results_name_the_commit_of_the_sources():
    call = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    assert commit()["commit"] == head
