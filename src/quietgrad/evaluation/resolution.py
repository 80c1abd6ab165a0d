"""Whether arithmetic resolves a log density: neighbouring numbers must have nearly the same value.

Far out a model may subtract large numbers. log Beta(z; a, b) with a + b = e^20 does so with log Gamma of
10^10, and single precision leaves thousands of nats of noise, on which a search climbs as on a hill.
"""

import numpy as np
from jaxtyping import Float

from .points import Points

# Places that are looked at, and the nats by which most of them may differ from their neighbours: beyond
# one, a difference of answers says nothing.
PLACES, RESOLVED = 8, 1.0
# Units in the last place between neighbours.
APART = 2.0


def resolved(
    points: Points,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    rng: np.random.Generator,
) -> bool:
    """Whether the log density is smooth from number to number around some draws with these moments.

    |f(z + h) - 2 f(z) + f(z - h)| / 2 is free of the slope, and of the curvature where the posterior is
    wider than a few thousand numbers.
    """
    z = (mean + std * rng.standard_normal((PLACES, mean.size))).astype(points.dtype).astype(float)
    h = APART * float(np.finfo(points.dtype).eps) * np.abs(z) * rng.choice([-1.0, 1.0], z.shape)
    with np.errstate(all="ignore"):
        value = points(np.concatenate([z + h, z, z - h]))[0].reshape(3, PLACES)
        noise = np.abs(value[0] - 2 * value[1] + value[2]) / 2
    known = noise[np.isfinite(noise)]
    return known.size == 0 or float(np.median(known)) < RESOLVED
