"""QuadCV (Geffner & Domke 2020; the paper's Algorithm 1): a quadratic surrogate, learned while fitting.

| module | what it has |
|---|---|
| `model` | the quadratic f~: its factored form, its gradient and mean, one step of learning |
| `coefficient` | beta, how much of f~ is subtracted, and the inner products it needs |
| `closed_form` | one step for families with known moments, however the quadratic is learned |
| `products` | those inner products for such families, without gradients of any draw |
| `quadratic` | `Quadratic`: learned by Adam, as in Geffner & Domke's code |
| `streamed` | `StreamedQuadratic`: learned from running averages, in fewer steps |
| `flow` | `QuadraticFlow`: any family, with means from further draws |
| `quadcv` | `QuadCV`: the form that suits the family |
"""

from .coefficient import AbstractCoefficient, InSampleBeta, LaggedBeta
from .flow import QuadraticFlow
from .model import Symmetric, Unsymmetrised
from .quadcv import QuadCV
from .quadratic import Quadratic
from .streamed import StreamedQuadratic

__all__ = [
    "AbstractCoefficient",
    "InSampleBeta",
    "LaggedBeta",
    "QuadCV",
    "Quadratic",
    "QuadraticFlow",
    "StreamedQuadratic",
    "Symmetric",
    "Unsymmetrised",
]
