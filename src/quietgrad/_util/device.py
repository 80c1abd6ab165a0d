"""From the host to the device without compiling anything: `jnp.asarray` would compile a program."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array


def on_device(x: Any, dtype: Any = None) -> Array:
    """The numbers as an array of jax's, of this type if one is given."""
    return jax.device_put(np.asarray(x, dtype))
