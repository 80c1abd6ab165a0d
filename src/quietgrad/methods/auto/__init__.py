"""auto: starts, curvature, step sizes, estimator and end chosen while the fit runs."""

from .auto import Auto

__all__ = ["Auto"]
