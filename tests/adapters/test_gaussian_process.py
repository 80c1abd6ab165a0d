"""A fit with Cholesky factors in its model comes to an end, and so does all that is asked of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpyro")
pytest.importorskip("arviz_base")

# It takes 10 to 20 s. What hangs does so for ever: the limit only has to be far above that.
LIMIT = 400
# Without blocks, one call in 20 to 400 hung on two cores.
REPEATS = 200


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_everything_asked_of_a_gaussian_process_returns(precision):
    script = Path(__file__).with_name("gaussian_process_fit.py")
    # Optimised as users have it: the flags of the tests change which calls run at the same time.
    environment = {**os.environ, "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, script, precision, str(REPEATS)],
        env=environment,
        timeout=LIMIT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("returned")
