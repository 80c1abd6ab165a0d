"""Where a result was made: versions, machine, precision. Written into every results file."""

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .._version import __version__

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "optax")


def environment() -> dict[str, Any]:
    """Versions, code commit, machine, threads and precision, as plain values."""
    import jax

    return {
        "quietgrad": __version__,
        **commit(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 0,
        "threads": threads(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "backend": jax.default_backend(),
        "precision": "float64" if jax.config.read("jax_enable_x64") else "float32",
    }


@functools.cache
def current_environment() -> dict[str, Any]:
    """The environment of this process when it was first asked for, which is that of the code it runs."""
    return environment()


def threads() -> int:
    """How many threads XLA uses in this process."""
    given = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC")
    if given:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> dict[str, Any]:
    """The commit of the source checkout and whether it was changed; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}

    def git(*arguments: str) -> str:
        call = ["git", "-C", str(root), *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def cpu_features() -> str:
    """What tells kinds of processors apart that run different programs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    starts = ("model name", "flags", "Features")
    return "\n".join([platform.machine(), *sorted({line for line in lines if line.startswith(starts)})])


def cache_folder() -> Path:
    """The user's cache folder for this package."""
    try:
        import pooch
    except ImportError:
        # Files put into the cache by hand are found without pooch too; this is its answer on Linux.
        root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(root).expanduser() / "quietgrad"
    return Path(pooch.os_cache("quietgrad"))
