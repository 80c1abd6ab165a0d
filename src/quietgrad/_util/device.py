"""From the host to the device without compiling anything, and programs that are compiled sooner.

`jnp.asarray` would compile a program.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array

# For programs that compile for longer than they run, as those of a first fit do: XLA's newer emitters of
# fused loops for processors take half as long again to compile as the older ones, and what they make is
# hardly faster. The option is named as in jax 0.10; a later XLA may not know it.
SOONER: dict[str, Any] = {}
if jax.__version__.startswith("0.10."):
    SOONER = {"compiler_options": {"xla_cpu_use_fusion_emitters": False}}


def on_device(x: Any, dtype: Any = None) -> Array:
    """The numbers as an array of jax's, of this type if one is given."""
    return jax.device_put(np.asarray(x, dtype))
