"""Stein control variates as weights of the draws: kernel x filter x folds.

A Stein control variate family C(e) with one coefficient vector per parameter, fitted by any rule that
is linear in the gradients phi, gives h = sum_l w_l phi_l. The rule needs only the Gram matrix
G = C C' of its columns (the kernel); what it does to G is a filter A(G): beta = -C'A phi. With the fit
taken on the draws themselves, h = mean(phi) + mean(C) beta becomes

    w' = 1'/L - (1'G/L) A(G),

so neither per-draw gradients nor a (params x columns) coefficient matrix is ever formed.
"""

from typing import Any

from jaxtyping import Array, Float

from .._checks import part
from ..bases import AbstractBase
from .filters import REGISTRY as FILTERS
from .filters import AbstractFilter
from .folds import REGISTRY as FOLDS
from .folds import AbstractFolds
from .kernels import REGISTRY as KERNELS
from .kernels import AbstractKernel
from .weights import AbstractWeights


class Stein(AbstractWeights):
    """Weights of Stein control variates on the base draws.

    Exact (zero variance) when phi is in the span of the kernel's columns and the filter interpolates.
    Costs O(L^2 d) for the Gram matrix and O(L^2) to O(L^3) for the filter; no target evaluations.
    Biased when the coefficients are fitted on the draws they are applied to (`folds="in-sample"`).
    """

    kernel: AbstractKernel
    filter: AbstractFilter
    folds: AbstractFolds

    def __init__(
        self,
        kernel: AbstractKernel | str = "polynomial",
        filter: AbstractFilter | str = "ridge",
        folds: AbstractFolds | str = "leave-one-out",
    ):
        def pick(given: Any, registry: Any, cls: type, kind: str) -> Any:
            return part(given, registry, cls, kind)

        self.kernel = pick(kernel, KERNELS, AbstractKernel, "kernel")
        self.filter = pick(filter, FILTERS, AbstractFilter, "filter")
        self.folds = pick(folds, FOLDS, AbstractFolds, "folds")

    def biased(self, *, independent: bool) -> bool:
        """Whether coefficients know of the draws they are applied to."""
        return self.folds.biased or not independent

    def refuses(self, draws: int, base: AbstractBase) -> str | None:
        """The kernel may find the tails too heavy, the folds the draws too few."""
        return self.kernel.refuses(base) or self.folds.refuses(draws)

    def __call__(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, " draws"]:
        """The weights of the draws."""
        gram = self.kernel.gram(e, base)
        scale = self.kernel.scale(e.shape[1], base)
        return self.folds.weights(gram, self.filter, scale)
