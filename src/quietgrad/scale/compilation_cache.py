"""Compiled programs kept on disk between processes: what was run before starts at once.

JAX keeps the programs; this says where. It is a setting of the whole process, so programs of the user's
own are kept as well. Whatever cannot be read or written is compiled, without an error.
"""

import contextlib
import os
import platform
import tempfile
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax

from .._util.environment import cache_folder, cpu_features

# The switch: a folder, or one of the words that turn the cache off.
VARIABLE = "QUIETGRAD_COMPILED"
OFF = ("off", "0", "false", "no")
# jax's settings that keep small programs too, which is what most of a fit's are.
SMALL = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
# In the folder of the package's own, programs older than this go, and the oldest where all take more.
ENTRY, MOST_DAYS, MOST_BYTES = "-cache", 60, 2**30

# The folder that was set here, if one was; and whether anybody has decided yet.
_ours: str | None = None
_decided = False


def keep_compiled(folder: str | os.PathLike[str] | None = "") -> Path | None:
    """Keep compiled programs in `folder`, or in the user's cache folder by default; None turns it off.

    Fits call this once by themselves, so that a second process need not compile what the first did. The
    environment variable QUIETGRAD_COMPILED names another folder, or is "off". A cache that was set up
    through jax itself (`jax_compilation_cache_dir`, or JAX_ENABLE_COMPILATION_CACHE=false) is left as it
    is unless a folder is given here. Returns the folder in use, None where nothing is kept.

    Several processes may share a folder: an entry that one is still writing is compiled by the other.
    Programs in a folder are run as they are, so it should belong to the user.
    """
    global _decided
    _decided = True
    if folder is None:
        return _turn_off()
    if not os.fspath(folder):
        return _by_default()
    return _use(Path(folder).expanduser())


def keep_compiled_once() -> None:
    """What a fit does first: the default, unless `keep_compiled` was called before."""
    if not _decided:
        keep_compiled()


def _by_default() -> Path | None:
    there = _setting("jax_compilation_cache_dir")
    if not _setting("jax_enable_compilation_cache"):
        return None
    if there and there != _ours:
        return Path(there)
    given = os.environ.get(VARIABLE, "").strip()
    if given.lower() in OFF:
        return _turn_off()
    if given:
        return _use(Path(given).expanduser())
    # Programs fit one kind of processor, and homes are shared between machines.
    kind = f"{platform.machine()}-{zlib.crc32(cpu_features().encode()):08x}"
    used = _use(cache_folder() / "compiled" / kind)
    if used is not None:
        _tidy(used)
    return used


def _setting(name: str) -> Any:
    # jax makes these attributes when it runs, so a type checker does not know them.
    return getattr(jax.config, name)


def _use(folder: Path) -> Path | None:
    global _ours
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Permissions do not tell of full disks and of file systems that are mounted to be read.
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"quietgrad")
    except OSError:
        return None
    if _ours is None or Path(_ours) != folder:
        _forget()
    _ours = str(folder)
    jax.config.update("jax_compilation_cache_dir", _ours)
    for name, value in SMALL.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    # A disk that fills up, or a process that was killed while it wrote, is no concern of the user's.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
    return folder


def _turn_off() -> None:
    global _ours
    if _ours is not None and _setting("jax_compilation_cache_dir") == _ours:
        jax.config.update("jax_compilation_cache_dir", None)
        _forget()
    _ours = None


def _forget() -> None:
    """Let jax look at its settings again, which it does when it first compiles something."""
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()


def _tidy(folder: Path) -> None:
    """Remove programs that nobody has compiled for long, and the oldest where they take much space."""
    with contextlib.suppress(OSError):
        files = [entry for entry in os.scandir(folder) if entry.name.endswith(ENTRY)]
        entries = [(e.stat().st_mtime, e.stat().st_size, e.path) for e in files]
        total, oldest = 0, time.time() - 86400 * MOST_DAYS
        for made, size, path in sorted(entries, reverse=True):
            total += size
            if made < oldest or total > MOST_BYTES:
                with contextlib.suppress(OSError):
                    os.unlink(path)
