"""A mean-field solution as the start of a richer family that contains it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from .family import AbstractFamily
from .flow import ShiftScale
from .full_rank import FullRank, pack_triangle
from .low_rank import LowRank
from .mean_field import MeanField
from .real_nvp import AffineRealNVP, Coupling, Network

# Factors start this large, relative to the scales: zero would be a stationary point.
FACTOR_NOISE = 0.05


def can_embed(like: AbstractFamily) -> bool:
    """Whether the family can come close to a mean-field solution."""
    return isinstance(like, MeanField | FullRank | LowRank | AffineRealNVP)


def embed(start: MeanField, like: AbstractFamily, *, key: Key[Array, ""]) -> AbstractFamily | None:
    """The member of `like`'s family closest to `start`; None if the family cannot come close.

    Full rank takes the diagonal, low rank adds small random factors, and the affine real NVP makes its
    couplings the identity (their last layers zero) and its shift and scale the solution.
    """
    if isinstance(like, MeanField):
        return start
    if isinstance(like, FullRank):
        packed = pack_triangle(jnp.diag(start.log_std))
        return FullRank(loc=start.loc, packed=packed, base=like.base)
    if isinstance(like, LowRank):
        noise = jr.normal(key, like.factor.shape, like.factor.dtype)
        factor = FACTOR_NOISE * jnp.exp(start.log_std)[None, :] * noise
        return LowRank(loc=start.loc, log_std=start.log_std, factor=factor)
    if isinstance(like, AffineRealNVP):
        return eqx.tree_at(
            lambda flow: flow.layers,
            like,
            (*map(_identity, like.layers[:-1]), ShiftScale(start.loc, start.log_std)),
        )
    return None


def _identity(layer: object) -> Coupling:
    assert isinstance(layer, Coupling)
    return Coupling(_silent(layer.scale), _silent(layer.shift), layer.cut, layer.first_moves)


def _silent(network: Network) -> Network:
    last = jax.tree.map(jnp.zeros_like, (network.weights[-1], network.biases[-1]))
    return Network((*network.weights[:-1], last[0]), (*network.biases[:-1], last[1]))
