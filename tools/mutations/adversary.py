from .mutant import Mutant
MUTANTS: list[Mutant] = []
