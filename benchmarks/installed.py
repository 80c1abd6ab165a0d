"""quietgrad as installers leave it: with bytecode, so that no first fit waits for Python's compiler.

A checkout has none where Python is told not to write any (`PYTHONDONTWRITEBYTECODE`), while jax, NumPyro
and PyMC have theirs.
"""

import compileall
from pathlib import Path

import quietgrad


def compile_bytecode() -> None:
    """Compile what is new."""
    compileall.compile_dir(Path(quietgrad.__file__).parent, quiet=2)
