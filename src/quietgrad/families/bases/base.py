"""The contract of a base distribution q_0(e): what samplers, families and Stein operators ask of it."""

import abc
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Key


class AbstractBase(eqx.Module):
    """A product of one symmetric density over the coordinates of e (mean zero, scale one).

    Symmetry, q_0(-e) = q_0(e), is what antithetic pairs need; every base here has it.
    """

    @abc.abstractmethod
    def log_prob(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density of each coordinate."""

    @abc.abstractmethod
    def score(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Derivative of `log_prob`, coordinate by coordinate."""

    @abc.abstractmethod
    def sample(self, shape: tuple[int, ...], dtype: Any, *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Independent draws."""

    @abc.abstractmethod
    def quantile(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Inverse of the distribution function, which carries uniform points to draws."""

    @abc.abstractmethod
    def host_quantile(self, u: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """`quantile` in NumPy, for draws that are made without compiling anything."""

    @abc.abstractmethod
    def host_log_prob(self, e: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """`log_prob` in NumPy."""

    @property
    @abc.abstractmethod
    def variance(self) -> float:
        """Variance of a coordinate (infinite where it does not exist)."""

    @property
    @abc.abstractmethod
    def entropy(self) -> float:
        """Differential entropy of a coordinate, in nats."""

    @property
    @abc.abstractmethod
    def moments(self) -> float:
        """Absolute moments of every order below this one exist."""
