"""Base distributions q_0 of the draws e: independent, identically distributed coordinates."""

from .base import AbstractBase
from .logistic import Logistic
from .normal import Normal
from .student_t import StudentT

REGISTRY: dict[str, type[AbstractBase]] = {
    "normal": Normal,
    "logistic": Logistic,
    "student-t": StudentT,
}

__all__ = ["REGISTRY", "AbstractBase", "Logistic", "Normal", "StudentT"]
