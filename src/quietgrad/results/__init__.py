"""What a fit hands back, how it is displayed, and posterior expectations from anyone's draws."""

from .result import FitResult

__all__ = ["FitResult"]
