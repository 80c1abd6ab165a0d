"""Surrogates: functions like the target whose mean under q is known, subtracted and added back."""

from .surrogate import AbstractSurrogate, Control

REGISTRY: dict[str, type[AbstractSurrogate]] = {}

__all__ = ["REGISTRY", "AbstractSurrogate", "Control"]
