"""Figures and a page from the records of a study. Never imports jax."""

from .._util.extras import needs_extra

with needs_extra("study", "a report"):
    from .build import build

__all__ = ["build"]
