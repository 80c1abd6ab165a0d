"""auto: step size, averaging, estimator and stopping chosen while the fit runs."""

from .driver import AutoSettings, fit_auto
from .journal import Decision

__all__ = ["AutoSettings", "Decision", "fit_auto"]
