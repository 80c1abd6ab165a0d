"""From the host to the device without compiling anything, and programs that are compiled sooner.

`jnp.asarray` would compile a program.
"""

import os
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

LEVEL = "xla_backend_optimization_level"


def _options(level: int) -> dict[str, Any]:
    """Arguments of `jax.jit` for a level of optimisation; one that XLA_FLAGS sets is left."""
    options: dict[str, Any] = {}
    if LEVEL not in os.environ.get("XLA_FLAGS", ""):
        options[LEVEL] = level
    # XLA's newer emitters of fused loops for processors take half as long again to compile as the older
    # ones, and what they make is hardly faster. Named as in jax 0.10; a later XLA may not know it.
    if jax.__version__.startswith("0.10."):
        options["xla_cpu_use_fusion_emitters"] = False
    return {"compiler_options": options} if options else {}


# For programs that compile for longer than they run, as those of a first fit do: level 1 compiles in
# three quarters to nine tenths of the default's time, and what it makes is as fast
# (`benchmarks/levels.py`).
SOONER = _options(1)
# For programs that run once or twice: level 0 compiles in about half of the time, and what it makes
# takes two to four times as long.
ONCE = _options(0)


def on_device(x: Any, dtype: Any = None) -> Array:
    """The numbers as an array of jax's, of this type if one is given."""
    return jax.device_put(np.asarray(x, dtype))
