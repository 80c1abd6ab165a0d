"""Seeded bugs and whether the tests see them: `python -m tools.mutations`."""

from . import adversary, drivers, models, parts
from .mutant import Mutant

# The first list grew with the tests; the second was written by reading the code, not the tests.
LISTS: dict[str, list[Mutant]] = {
    "seeded": [*parts.MUTANTS, *models.MUTANTS, *drivers.MUTANTS],
    "adversary": adversary.MUTANTS,
}
