"""Seeded bugs and whether the tests see them: `python -m tools.mutations`."""

from . import drivers, models, parts
from .mutant import Mutant

MUTANTS: list[Mutant] = [*parts.MUTANTS, *models.MUTANTS, *drivers.MUTANTS]
