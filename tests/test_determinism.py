"""The same seed gives the same bits: again in one process, and in another one.

Studies are held to the same by `study/test_chaos.py`, engine by engine. Limits of the promise are in
docs/reliability.md.
"""

import os
import subprocess
import sys

import determinism_fits
import jax
import pytest
from determinism_fits import FITS, digest

THIN = "sgd, quadcv"


def in_another_process(names):
    """Digests of these fits from a process of its own with the settings of this one."""
    precision = "1" if jax.config.read("jax_enable_x64") else "0"
    done = subprocess.run(
        [sys.executable, determinism_fits.__file__, *names],
        env={**os.environ, "JAX_ENABLE_X64": precision},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(line.split("\t", 1) for line in done.stdout.splitlines())


def test_a_fit_can_be_repeated_bit_by_bit():
    first = digest(THIN)
    assert not first.startswith("refused")
    assert digest(THIN) == first


@pytest.fixture(scope="module")
def elsewhere():
    return in_another_process(FITS)


@pytest.mark.slow  # compiles every estimator and method twice
@pytest.mark.parametrize("name", FITS)
def test_the_same_bits_again_and_in_another_process(name, elsewhere, tell):
    first = digest(name)
    assert digest(name) == first
    assert elsewhere[name] == first
    if first.startswith("refused"):
        tell(f"{name} {first}")
    else:
        tell(f"{name}: the same bits three times", repeated_fits=1)


def test_another_seed_gives_other_bits():
    """So that equal digests mean something."""
    assert digest(THIN, seed=4) != digest(THIN)
