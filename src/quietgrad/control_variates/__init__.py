"""Explicit control variates C(e) of shape (draws, params, J) and rules for their coefficients.

The paper's sections 2 and 3 taken literally: the place to try a new control variate, and the oracle
that the fast forms are tested against.
"""

from .control_variate import AbstractControlVariate, Sample
from .criteria import CRITERIA, AbstractCriterion, LeastSquares, PairwiseVariance, SquaredNorm
from .ensemble import Ensemble
from .quadratic import QuadraticColumn
from .solvers import SOLVERS, AbstractSolver, Descent, Exact, Penalised
from .sources import SOURCES, AbstractSource, Earlier, HeldOut, Same
from .stein import SteinColumns
from .taylor import TaylorColumn

REGISTRY: dict[str, type[AbstractControlVariate]] = {
    "stein": SteinColumns,
    "quadratic": QuadraticColumn,
    "taylor": TaylorColumn,
}

__all__ = [
    "CRITERIA",
    "REGISTRY",
    "SOLVERS",
    "SOURCES",
    "AbstractControlVariate",
    "AbstractCriterion",
    "AbstractSolver",
    "AbstractSource",
    "Descent",
    "Earlier",
    "Ensemble",
    "Exact",
    "HeldOut",
    "LeastSquares",
    "PairwiseVariance",
    "Penalised",
    "QuadraticColumn",
    "Same",
    "Sample",
    "SquaredNorm",
    "SteinColumns",
    "TaylorColumn",
]
