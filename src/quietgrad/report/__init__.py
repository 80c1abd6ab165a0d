"""Figures and a page from the records of a study. Never imports jax."""

from .build import build

__all__ = ["build"]
