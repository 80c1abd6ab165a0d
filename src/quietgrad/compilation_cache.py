"""Compiled programs kept on disk between processes: what was run before starts at once."""

import contextlib
import platform

import jax

from .environment import cache_folder


def keep_compiled() -> None:
    """Let this process store and find programs in the user's cache, unless a place is set already.

    Programs fit one kind of processor, so each host has a folder of its own. JAX_COMPILATION_CACHE_DIR
    names another place; JAX_ENABLE_COMPILATION_CACHE=false turns this off. Best effort: what cannot be
    read or written is compiled.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    folder = cache_folder() / "compiled" / (platform.node() or "host")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
