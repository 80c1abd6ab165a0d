"""The contract of an explicit (per-draw) control variate, and the draws it is evaluated on."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from ..._numerics.lapack import over_points
from ...families import AbstractFamily, split
from ...targets import Target
from ..entropy import AbstractEntropy


class Sample(NamedTuple):
    """Draws with everything that is known of them, one row per draw.

    `e` base draws, `z` points, `slope` target gradients at z, `phi` gradients of the integrand with
    respect to all parameters, `value` the draws' terms of the ELBO.
    """

    e: Float[Array, "draws base"]
    z: Float[Array, "draws dim"]
    slope: Float[Array, "draws dim"]
    phi: Float[Array, "draws params"]
    value: Float[Array, " draws"]


class AbstractControlVariate(eqx.Module):
    """J columns with mean zero for every draw and every parameter."""

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Why this control variate cannot be used on the pair; None if it can."""
        del target, q
        return None

    def hessian_products(self, q: AbstractFamily) -> int:
        """Hessian-vector products of the target that one set of columns takes."""
        del q
        return 0

    def init(self, target: Target, q: AbstractFamily) -> PyTree:
        """State before the first step."""
        del target, q
        return None

    @abc.abstractmethod
    def columns(
        self, state: PyTree, target: Target, q: AbstractFamily, sample: Sample, *, key: Key[Array, ""]
    ) -> Float[Array, "draws params columns"]:
        """C(e_l) for each draw. Its mean over the base is zero whatever the state."""

    def update(
        self, state: PyTree, target: Target, q: AbstractFamily, sample: Sample, *, key: Key[Array, ""]
    ) -> PyTree:
        """The state for the next step, learned from this step's draws."""
        del target, q, sample, key
        return state


def take_sample(
    target: Target, q: AbstractFamily, entropy: AbstractEntropy, e: Float[Array, "draws base"]
) -> Sample:
    """Per-draw gradients, one backward pass for each draw."""

    def one(draw: Float[Array, " base"]) -> Sample:
        path = entropy.path(q, draw[None, :])
        value, slope = jax.value_and_grad(target.log_density)(path.z[0])
        phi = path.pull_back(slope[None, :], jnp.ones(1, draw.dtype))
        return Sample(draw, path.z[0], slope, ravel_pytree(phi)[0], value - path.log_q[0])

    return over_points(one, e)


def pull_each(
    q: AbstractFamily, e: Float[Array, "draws base"], cotangent: Float[Array, "draws dim"]
) -> Float[Array, "draws params"]:
    """J_l'c_l for each draw: cotangents of the points carried to all parameters."""
    params, rebuild = split(q)

    def one(draw: Float[Array, " base"], c: Float[Array, " dim"]) -> Float[Array, " params"]:
        vjp = jax.vjp(lambda p: rebuild(p).transport(draw), params)[1]
        return ravel_pytree(vjp(c)[0])[0]

    return jax.vmap(one)(e, cotangent)
