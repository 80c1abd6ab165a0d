"""Normalizing flows: a base draw pushed through invertible layers, with its exact path score.

The score moves with the draw: s_0 = grad log q_0(e), and through a layer with Jacobian J,
  s' = J^-T (s - grad log|det J|),
so sticking the landing needs no inverse pass.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .family import AbstractFamily, Invertible


class AbstractLayer(eqx.Module):
    """An invertible map with known log determinant."""

    @abc.abstractmethod
    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of u and log|det J|."""

    @abc.abstractmethod
    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The image of u, log|det J| and the score of the image's density."""

    @abc.abstractmethod
    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """u with forward(u) = v."""


class AbstractFlow(AbstractFamily, Invertible):
    """A base draw pushed through `layers`, first to last."""

    layers: eqx.AbstractVar[tuple[AbstractLayer, ...]]
    size: eqx.AbstractVar[int]

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.size

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = T_K(... T_1(e))."""
        return self.transport_and_log_prob(e)[0]

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = log q_0(e) - sum of the layers' log determinants."""
        z, log_prob = e, jnp.sum(self.base.log_prob(e))
        for layer in self.layers:
            z, log_det = layer.forward(z)
            log_prob = log_prob - log_det
        return z, log_prob

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is pushed forward with the draw."""
        z, log_prob, score = e, jnp.sum(self.base.log_prob(e)), self.base.score(e)
        for layer in self.layers:
            z, log_det, score = layer.forward_with_score(z, score)
            log_prob = log_prob - log_det
        return z, log_prob, score

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The base draw that leads to z."""
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.transport_and_log_prob(self.inverse(z))[1]


class ShiftScale(AbstractLayer):
    """u -> shift + exp(log_scale) * u, coordinate by coordinate."""

    shift: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]

    @classmethod
    def identity(cls, dim: int, dtype: Any = None) -> "ShiftScale":
        """The layer that changes nothing."""
        return cls(jnp.zeros(dim, dtype), jnp.zeros(dim, dtype))

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of u and the sum of the log scales."""
        return self.shift + jnp.exp(self.log_scale) * u, jnp.sum(self.log_scale)

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score is divided by the scale."""
        return *self.forward(u), score * jnp.exp(-self.log_scale)

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """(v - shift) / scale."""
        return (v - self.shift) * jnp.exp(-self.log_scale)
