"""The contract of an entropy mode: it carries draws to points and keeps the way back.

The ELBO is E f(z) + H(q). A mode decides what of H is differentiated along the draws.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from ...families import AbstractFamily

Cotangent = Float[Array, "draws dim"]


class Path(NamedTuple):
    """A batch of draws carried to points, with the way back to the parameters.

    `z`: the points. `log_q`: what each draw contributes to the ELBO with a minus sign. `score`: the path
    score, grad log q at each point, if the mode subtracts it from the target's gradient, else None.
    `pull_back(c, w)`: the estimate of the ELBO gradient for cotangents c of the points and weights w of
    the draws. `pull_points(c)`: the plain pull back of (weighted) cotangents, without the entropy.
    """

    z: Float[Array, "draws dim"]
    log_q: Float[Array, " draws"]
    score: Float[Array, "draws dim"] | None
    pull_back: Callable[[Cotangent, Float[Array, " draws"]], PyTree]
    pull_points: Callable[[Cotangent], PyTree]


class AbstractEntropy(eqx.Module):
    """A way to differentiate the entropy part of the ELBO."""

    def refuses(self, q: AbstractFamily) -> str | None:
        """Why this mode cannot be used with the family; None if it can."""
        del q
        return None

    @abc.abstractmethod
    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """Carry the draws through the family; one `jax.vjp`."""


def over_draws(method: Callable[..., PyTree], e: Float[Array, "draws base"]) -> PyTree:
    """Apply a method of the family to every draw."""
    return jax.vmap(method)(e)
