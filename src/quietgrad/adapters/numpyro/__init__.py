"""NumPyro: models as targets, and quiet gradients inside NumPyro's own loop."""

from ..._util.extras import needs_extra

with needs_extra("numpyro", "a NumPyro model"):
    import numpyro  # noqa: F401

from .model import NumpyroModel
from .non_centring import non_centred
from .quiet_elbo import QuietELBO
from .reading import target_of

__all__ = ["NumpyroModel", "QuietELBO", "non_centred", "target_of"]
