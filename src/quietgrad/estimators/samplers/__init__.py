"""Samplers of base draws: how the L draws of a step are made."""

from collections.abc import Callable

from .antithetic import Antithetic
from .chosen import Chosen
from .iid import Iid
from .latin_hypercube import LatinHypercube
from .rqmc import Rqmc
from .sampler import AbstractSampler

REGISTRY: dict[str, Callable[[], AbstractSampler]] = {
    "iid": Iid,
    "antithetic": Antithetic,
    "rqmc": Rqmc,
    "antithetic-rqmc": lambda: Antithetic(Rqmc()),
    "latin-hypercube": LatinHypercube,
}

__all__ = ["REGISTRY", "AbstractSampler", "Antithetic", "Chosen", "Iid", "LatinHypercube", "Rqmc"]
