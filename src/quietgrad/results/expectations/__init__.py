"""Posterior expectations from draws of chains, with less noise than a plain mean."""

from .posterior import posterior_expectations
from .result import Expectations

__all__ = ["Expectations", "posterior_expectations"]
