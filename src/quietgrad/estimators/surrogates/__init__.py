"""Surrogates: functions like the target whose mean under q is known, subtracted and added back."""

from .quadcv import (
    AbstractCoefficient,
    InSampleBeta,
    LaggedBeta,
    QuadCV,
    Quadratic,
    QuadraticFlow,
    StreamedQuadratic,
)
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
