"""Where a result was made: versions, machine, precision. Written into every results file."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from ._version import __version__

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
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "backend": jax.default_backend(),
        "precision": "float64" if jax.config.read("jax_enable_x64") else "float32",
    }


def commit() -> dict[str, Any]:
    """The commit of the source checkout and whether it was changed; None for an installed package."""
    root = Path(__file__).resolve().parents[2]
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
