"""Host linear algebra on one thread: the matrices of a fit are small, and BLAS's threads spin.

On a machine that also does other work, OpenBLAS's threads wait for each other, which makes products of
small matrices ten times slower. The limit holds for the time of a call and is taken back after it.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np  # noqa: F401 - its library must be loaded before the controller looks
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the BLAS libraries of NumPy and SciPy to one thread."""
    with _controller().limit(limits=1, user_api="blas"):
        yield
