"""Settings of every test: double precision, no silent broadcasting, and a key that never changes."""

import os

# Tests compile much and run little, and these make compiling about four times faster. XLA stops at
# flags it does not know: should a new jax have dropped one, drop it here.
FAST_COMPILATION = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FAST_COMPILATION}"

import jax  # noqa: E402
import pytest  # noqa: E402
from subjects import key_of  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def key(request):
    """A fixed seed folded with the test's name: the same on every run, different in every test."""
    return key_of(request.node.nodeid)
