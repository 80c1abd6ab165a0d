"""The standard normal base, the paper's choice for every family."""

import math
from typing import Any

import numpy as np
import scipy.special
from jax.scipy.special import erfinv
from jaxtyping import Array, Float, Key

from ..._util.random import normal
from .base import AbstractBase


class Normal(AbstractBase):
    """e ~ N(0, 1)."""

    def log_prob(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """-e^2/2 - log sqrt(2 pi)."""
        return -0.5 * (e**2 + math.log(2 * math.pi))

    def score(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """-e."""
        return -e

    def sample(self, shape: tuple[int, ...], dtype: Any, *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Independent draws."""
        return normal(shape, dtype, key=key)

    def quantile(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The probit of u."""
        return math.sqrt(2) * erfinv(2 * u - 1)

    def host_quantile(self, u: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The probit of u."""
        return np.asarray(scipy.special.ndtri(u))

    def host_log_prob(self, e: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """-e^2/2 - log sqrt(2 pi)."""
        return -0.5 * (e**2 + math.log(2 * math.pi))

    @property
    def variance(self) -> float:
        """One."""
        return 1.0

    @property
    def entropy(self) -> float:
        """(1 + log 2 pi) / 2."""
        return 0.5 * (1 + math.log(2 * math.pi))

    @property
    def moments(self) -> float:
        """All moments exist."""
        return math.inf
