"""Explicit control variates, the literal and slow form: one-pass forms are in `surrogates`, `weights`.

Columns C(e) of shape (draws, params, J) and rules for their coefficients, as in the paper's sections 2
and 3. The place to try a new control variate, and the oracle that the one-pass forms are tested against.
`Controlled` turns one into an estimator.
"""

from .control_variate import AbstractControlVariate, Sample
from .criteria import CRITERIA, AbstractCriterion, EmpiricalVariance, PairwiseVariance, SquaredNorm
from .ensemble import Ensemble
from .quadratic import QuadraticColumn
from .solvers import SOLVERS, AbstractSolver, ExplicitDescent, ExplicitLeastSquares, ExplicitRidge
from .sources import SOURCES, AbstractSource, HeldOutSource, InSampleSource, LaggedSource
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
    "ExplicitDescent",
    "LaggedSource",
    "Ensemble",
    "ExplicitLeastSquares",
    "HeldOutSource",
    "EmpiricalVariance",
    "PairwiseVariance",
    "ExplicitRidge",
    "QuadraticColumn",
    "InSampleSource",
    "Sample",
    "SquaredNorm",
    "SteinColumns",
    "TaylorColumn",
]
