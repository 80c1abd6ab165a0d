"""The Student-t base: polynomial tails, so only moments below its degrees of freedom exist."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Key

from .base import AbstractBase


class StudentT(AbstractBase):
    """e ~ t with `df` degrees of freedom and scale one (not variance one)."""

    df: float = eqx.field(static=True, default=5.0)

    def __check_init__(self):
        """Reject degrees of freedom that are not positive."""
        if not self.df > 0:
            raise ValueError(f"df must be positive; got {self.df!r}")

    def log_prob(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """-(df + 1)/2 log(1 + e^2/df) - log normaliser."""
        return -0.5 * (self.df + 1) * jnp.log1p(e**2 / self.df) - self._log_normaliser

    def score(self, e: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """-(df + 1) e / (df + e^2)."""
        return -(self.df + 1) * e / (self.df + e**2)

    def sample(self, shape: tuple[int, ...], dtype: Any, *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Independent draws."""
        return jr.t(key, self.df, shape, dtype)

    def quantile(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """SciPy's quantile, called from the host: jax has no inverse incomplete beta function."""
        shape = jax.ShapeDtypeStruct(u.shape, u.dtype)
        return jax.pure_callback(self._called_back, shape, u, vmap_method="expand_dims")

    def host_quantile(self, u: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The quantile of u."""
        return np.asarray(scipy.special.stdtrit(float(self.df), u))

    def host_log_prob(self, e: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """-(df + 1)/2 log(1 + e^2/df) - log normaliser."""
        return -0.5 * (self.df + 1) * np.log1p(e**2 / self.df) - self._log_normaliser

    @property
    def _log_normaliser(self) -> float:
        half = 0.5 * (self.df + 1)
        return math.lgamma(0.5 * self.df) - math.lgamma(half) + 0.5 * math.log(self.df * math.pi)

    @property
    def variance(self) -> float:
        """df / (df - 2), infinite up to two degrees of freedom."""
        return self.df / (self.df - 2) if self.df > 2 else math.inf

    @property
    def entropy(self) -> float:
        """(df+1)/2 [psi((df+1)/2) - psi(df/2)] + log(sqrt(df) B(df/2, 1/2))."""
        half = 0.5 * (self.df + 1)
        slope = scipy.special.digamma(half) - scipy.special.digamma(0.5 * self.df)
        return float(half * slope + 0.5 * math.log(self.df) + scipy.special.betaln(0.5 * self.df, 0.5))

    @property
    def moments(self) -> float:
        """Moments below `df` exist."""
        return self.df

    def _called_back(self, u: Any) -> np.ndarray:
        values = np.asarray(u)
        return self.host_quantile(values.astype(float)).astype(values.dtype)
