"""Surrogates: functions like the target whose mean under q is known, subtracted and added back."""

from .coefficient import AbstractCoefficient, InSampleBeta, LaggedBeta
from .quadcv import QuadCV
from .quadratic import Quadratic
from .quadratic_flow import QuadraticFlow
from .streamed_quadratic import StreamedQuadratic
from .surrogate import AbstractSurrogate, Control
from .taylor import Taylor

REGISTRY: dict[str, type[AbstractSurrogate]] = {
    "quadcv": QuadCV,
    "quadratic": Quadratic,
    "quadratic-flow": QuadraticFlow,
    "quadratic-streamed": StreamedQuadratic,
    "taylor": Taylor,
}

__all__ = [
    "REGISTRY",
    "AbstractCoefficient",
    "AbstractSurrogate",
    "Control",
    "InSampleBeta",
    "LaggedBeta",
    "QuadCV",
    "Quadratic",
    "QuadraticFlow",
    "StreamedQuadratic",
    "Taylor",
]
