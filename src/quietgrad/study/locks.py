"""Locks that end with the process that holds them, however it ends."""

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - systems without it run unlocked
    fcntl = None

POLL_SECONDS = 0.1


@contextmanager
def host_lock(waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Be the only one who times anything on this host; `waiting` is called once if another is.

    The file is in the host's own temporary directory (TMPDIR), so studies in different directories, and
    workers that share a file system with other hosts, are distinguished rightly.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = Path(os.environ.get("TMPDIR") or tempfile.gettempdir()) / f"quietgrad-timing-{user}.lock"
    with path.open("a") as file:
        if not _try_lock(file.fileno()):
            waiting()
            while not _try_lock(file.fileno()):
                time.sleep(POLL_SECONDS)
        yield


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Be the only coordinator of a results directory, or raise a `ValueError` at once."""
    with (directory / ".lock").open("a") as file:
        if not _try_lock(file.fileno()):
            raise ValueError(f"another `quietgrad study` is at work in {directory}; wait for it to end")
        yield


def _try_lock(file: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
            return True
        raise
    return True
