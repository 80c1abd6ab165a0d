"""Deterministic fits: fixed draws and L-BFGS (sample average approximation), judged by fresh draws."""

from .climb import SaaSettings
from .driver import fit_saa

__all__ = ["SaaSettings", "fit_saa"]
