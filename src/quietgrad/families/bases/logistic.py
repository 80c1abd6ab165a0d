"""The standard logistic base: heavier tails than the normal, all moments finite."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Key

from .base import AbstractBase


class Logistic(AbstractBase):
    """e with density exp(-e) / (1 + exp(-e))^2."""

    def log_prob(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """-|e| - 2 log(1 + exp(-|e|))."""
        return -jnp.abs(e) - 2 * jnp.log1p(jnp.exp(-jnp.abs(e)))

    def score(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """-tanh(e/2)."""
        return -jnp.tanh(0.5 * e)

    def sample(self, shape: tuple[int, ...], dtype: Any, *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Independent draws."""
        return jr.logistic(key, shape, dtype)

    def quantile(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """log(u / (1 - u))."""
        return jax.scipy.special.logit(u)

    def host_quantile(self, u: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The logit of u."""
        return np.asarray(scipy.special.logit(u))

    def host_log_prob(self, e: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """-|e| - 2 log(1 + exp(-|e|))."""
        return -np.abs(e) - 2 * np.log1p(np.exp(-np.abs(e)))

    @property
    def variance(self) -> float:
        """pi^2 / 3."""
        return math.pi**2 / 3

    @property
    def entropy(self) -> float:
        """Two nats."""
        return 2.0

    @property
    def moments(self) -> float:
        """All moments exist."""
        return math.inf
