"""QuadCV (Geffner & Domke 2020; the paper's Algorithm 1): a quadratic surrogate, learned while fitting.

| module | what it has |
|---|---|
| `quadcv` | a step: for families with known moments, for any other, and `QuadCV`, the form that suits |
| `model` | the quadratic f~: its factored form, its gradient and mean, one step of learning |
| `coefficient` | beta, how much of f~ is subtracted, and the inner products it needs |
| `streamed` | a variant that learns from running averages, in fewer steps |
"""

from .coefficient import AbstractCoefficient, InSampleBeta, LaggedBeta
from .model import Symmetric, Unsymmetrised
from .quadcv import QuadCV, Quadratic, QuadraticFlow
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
