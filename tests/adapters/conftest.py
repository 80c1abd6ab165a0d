"""Other packages broadcast as NumPy does, so it is allowed here."""

import jax
import pytest


@pytest.fixture(autouse=True)
def broadcasting():
    with jax.numpy_rank_promotion("allow"):
        yield
