"""auto: step size, averaging, estimator and stopping chosen while the fit runs."""

from .driver import fit_auto
from .journal import Decision
from .run import AutoSettings

__all__ = ["AutoSettings", "Decision", "fit_auto"]
