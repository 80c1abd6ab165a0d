"""What compiled programs take of a process, and forgetting them before it is too much.

Each takes several memory maps, of which a process may have only so many, and XLA ends the process at the
limit. Forgetting takes seconds, and compiling again more, so it is put off.
"""

import ctypes
import gc
import os
from pathlib import Path

import jax

MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
PAGES = Path("/proc/self/statm")
# The programs of one large fit made fewer than two thousand.
SPARE_MAPS = 10_000


def crowded(most_bytes: int | None = None, spare_maps: int = SPARE_MAPS) -> bool:
    """Whether this process may have fewer than `spare_maps` more maps, or holds more than `most_bytes`.

    False where the system does not say.
    """
    if not (MAPS.exists() and MOST_MAPS.exists() and PAGES.exists()):
        return False
    resident = int(PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if most_bytes is not None and resident > most_bytes:
        return True
    return MAPS.read_bytes().count(b"\n") > int(MOST_MAPS.read_text()) - spare_maps


def forget_programs() -> None:
    """Forget every compiled program; what is used again is compiled again."""
    jax.clear_caches()
    gc.collect()
    give_back()


def give_back() -> None:
    """Give freed memory to the system, which glibc would keep."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
