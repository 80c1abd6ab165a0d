"""A process that compiles much forgets its programs before it may have no more memory maps."""

import mmap

import jax.numpy as jnp
import pytest
from subjects import PROGRAMS

from quietgrad._util import memory
from quietgrad._util.compiling import program

pytestmark = pytest.mark.skipif(
    not memory.MOST_MAPS.exists(), reason="this system tells no limit of maps"
)


def test_a_process_is_crowded_by_its_maps():
    used = memory.MAPS.read_bytes().count(b"\n")
    spare = int(memory.MOST_MAPS.read_text()) - used - 500
    assert not memory.crowded(spare_maps=spare)
    held = [mmap.mmap(-1, mmap.PAGESIZE) for _ in range(1000)]
    assert memory.crowded(spare_maps=spare)
    for one in held:
        one.close()
    assert not memory.crowded(spare_maps=spare)


def test_a_process_is_crowded_by_its_memory():
    assert memory.crowded(most_bytes=2**20)
    assert not memory.crowded(most_bytes=2**50)


# It forgets those of all tests before it, too.
@pytest.mark.slow
def test_forgotten_programs_are_compiled_again():
    double = program(lambda x: 2 * x)
    double(jnp.ones(3))
    before = PROGRAMS[0]
    double(jnp.ones(3))
    assert PROGRAMS[0] == before
    memory.forget_programs()
    assert double(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert PROGRAMS[0] > before
