"""Bugs that were written by reading the code as an adversary, before looking at any test.

Small and realistic ones: a wrong axis, stale state, a dropped term, a swapped argument, a reused key, a
reversed comparison, a missing factor. They are judged by the tests beside the code.
"""

from ..mutant import Mutant
from . import corrected, diagnosing, evaluating, families, outside, solving

MUTANTS: list[Mutant] = [
    *evaluating.MUTANTS,
    *solving.MUTANTS,
    *diagnosing.MUTANTS,
    *corrected.MUTANTS,
    *families.MUTANTS,
    *outside.MUTANTS,
]
