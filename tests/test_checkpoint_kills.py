"""Processes that are killed in the middle of a fit, and the next ones that go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import checkpoint_fits
import numpy as np
import pytest

METHODS = ("sgd", "saa", "auto")
MOMENTS = 8


def process(directory, *args):
    """A process that fits; programs that an earlier one compiled are not compiled again."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(directory / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.Popen(
        [sys.executable, checkpoint_fits.__file__, *map(str, args)],
        env={**os.environ, **cache},
        stdout=subprocess.PIPE,
        text=True,
    )


def printed(running):
    """What a process prints until its end."""
    text, _ = running.communicate()
    return text.split()


@pytest.mark.chaos
def test_a_write_that_was_killed_leaves_the_checkpoint_before(tmp_path):
    """All methods in one process, which is killed while the last of them writes."""
    method = METHODS[-1]
    cut = process(tmp_path, tmp_path, *METHODS, "--cut", f"{method}:2")
    assert printed(cut)[-1] == method
    assert cut.returncode == -signal.SIGKILL
    assert list((tmp_path / method).glob(".*.tmp"))
    last = process(tmp_path, tmp_path, *METHODS, "--alone")
    words = printed(last)
    assert last.returncode == 0
    assert words[::3] == list(METHODS)
    assert words[1::3] == words[2::3]
    # What the killed writer left is gone.
    left = [path.name for method in METHODS for path in (tmp_path / method).iterdir()]
    assert left == ["fit.checkpoint"] * len(METHODS)


@pytest.mark.chaos
@pytest.mark.parametrize("method", ["long", *METHODS[1:]])
def test_a_fit_that_is_killed_at_any_moment_ends_with_the_same_bits(method, tmp_path, tell):
    """Fits that are each killed at a seeded part of the time that a whole one takes, then resumed."""
    whole = process(tmp_path, tmp_path / "first", method, "--alone")
    _, found, expected = printed(whole)
    assert found == expected
    taken = seconds(tmp_path, tmp_path / "timed", method)
    rng, kept = np.random.default_rng(len(method)), 0
    for moment in range(MOMENTS):
        directory, share = tmp_path / str(moment), rng.uniform()
        while True:
            killed = process(tmp_path, directory, method)
            assert killed.stdout is not None
            assert killed.stdout.readline().strip() == method
            time.sleep(share * taken)
            killed.kill()
            if len(printed(killed)) == 0:
                break
            # It was done before; some other time earlier.
            share *= 0.7
            directory = Path(f"{directory}-again")
        kept += bool(list(directory.rglob("fit.checkpoint")))
        resumed = process(tmp_path, directory, method)
        assert printed(resumed) == [method, expected]
    tell(
        f"fit(checkpoint=...) by {method}: {MOMENTS} kills, {kept} after a first checkpoint; same bits",
        kills=MOMENTS,
    )


def seconds(cache, directory, method):
    """How long a fit takes from when its process begins it."""
    running = process(cache, directory, method)
    assert running.stdout is not None
    running.stdout.readline()
    begun = time.perf_counter()
    printed(running)
    return time.perf_counter() - begun
