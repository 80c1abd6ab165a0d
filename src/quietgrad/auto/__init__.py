"""auto: step size, averaging, estimator and stopping chosen while the fit runs."""

from .choose import cheapest
from .driver import fit_auto
from .journal import Decision
from .settings import AutoSettings
from .switching import Switching

__all__ = ["AutoSettings", "Decision", "Switching", "cheapest", "fit_auto"]
