"""Methods: how an ELBO is climbed. Each is a frozen object with its settings."""

from .auto import Auto
from .bam import Bam
from .method import AbstractMethod, Problem
from .saa import Saa
from .sgd import Sgd

REGISTRY: dict[str, type[AbstractMethod]] = {
    "auto": Auto,
    "sgd": Sgd,
    "saa": Saa,
    "bam": Bam,
}

__all__ = ["REGISTRY", "AbstractMethod", "Auto", "Bam", "Problem", "Saa", "Sgd"]
