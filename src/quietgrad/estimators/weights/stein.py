"""Stein control variates as weights of the draws: kernel x solver x folds.

A Stein control variate family C(e) with one coefficient vector per parameter, fitted by any rule that
is linear in the gradients phi, gives h = sum_l w_l phi_l. The rule needs only the Gram matrix
G = C C' of its columns (the kernel) and a matrix A(G) (the solver): beta = -C'A phi. Folds say which
draws beta is fitted on. In-sample, h = mean(phi) + mean(C) beta becomes

    w' = 1'/L - (1'G/L) A(G),

so neither per-draw gradients nor a (params x columns) coefficient matrix is ever formed.
"""

from typing import Any

from jaxtyping import Array, Float

from ..._util.checks import part
from ...families.bases import AbstractBase
from .designs import GramDesign
from .folds import REGISTRY as FOLDS
from .folds import AbstractFolds
from .kernels import REGISTRY as KERNELS
from .kernels import AbstractKernel
from .solvers import REGISTRY as GRAM_SOLVERS
from .solvers import AbstractGramSolver
from .weights import AbstractWeights


class Stein(AbstractWeights):
    """Weights of Stein control variates on the base draws.

    Exact (zero variance) when phi is in the span of the kernel's columns and the solver interpolates.
    Costs O(L^2 d) for the Gram matrix and O(L^2) to O(L^3) for the solver; no target evaluations.
    Biased when the coefficients are fitted in-sample, on the draws they are applied to; cross-fitted
    ones (k-fold, leave-one-out) are unbiased for independent draws.
    """

    kernel: AbstractKernel
    solver: AbstractGramSolver
    folds: AbstractFolds

    def __init__(
        self,
        kernel: AbstractKernel | str = "polynomial",
        solver: AbstractGramSolver | str = "ridge",
        folds: AbstractFolds | str = "leave-one-out",
    ):
        def pick(given: Any, registry: Any, cls: type, kind: str) -> Any:
            return part(given, registry, cls, kind)

        self.kernel = pick(kernel, KERNELS, AbstractKernel, "kernel")
        self.solver = pick(solver, GRAM_SOLVERS, AbstractGramSolver, "solver")
        self.folds = pick(folds, FOLDS, AbstractFolds, "folds")

    def biased(self, *, independent: bool) -> bool:
        """Whether coefficients know of the draws they are applied to."""
        return self.folds.biased or not independent

    def refuses(self, draws: int, base: AbstractBase) -> str | None:
        """The kernel may find the tails too heavy, the folds the draws too few."""
        return self.kernel.refuses(base) or self.folds.refuses(draws)

    def __call__(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, " draws"]:
        """The weights of the draws."""
        gram = self.kernel.gram_of_base(e, base)
        scale = self.kernel.scale(e.shape[1], base)
        return self.folds.weights(GramDesign(gram, scale), self.solver)
