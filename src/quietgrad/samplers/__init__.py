"""Samplers of base draws: how the L draws of a step are made."""

from .antithetic import Antithetic
from .iid import Iid
from .sampler import AbstractSampler

REGISTRY: dict[str, type[AbstractSampler]] = {
    "iid": Iid,
    "antithetic": Antithetic,
}

__all__ = ["REGISTRY", "AbstractSampler", "Antithetic", "Iid"]
