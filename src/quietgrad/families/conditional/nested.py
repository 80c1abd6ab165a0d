"""Nested Laplace: given the globals, the locals' own mode and curvature (Rue et al. 2009).

  m(g) = argmax_z f(g, z),    P(g) = -d^2 f / dz^2 at (g, m(g)),    q(z | g) = N(m(g), P(g)^-1).
It is exact where the conditional is Gaussian, in one step. Steps begin at a linear prediction from a
centre. They are not differentiated: at a fixed point one further step has the derivatives of the fixed
point by the globals (the implicit function theorem), so that step alone is. O(n) a draw.
"""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._util.device import on_device
from ...structure import BlockMatrix, BlockRoot, Structure, blocks_of_hessian, root_of_inverse
from ...structure import small_matrices as small
from ...targets import Target
from .locals import AbstractConditional, Locals

# Newton steps at most, and those from a start that nothing is known of.
MOST, MOST_AT_FIRST = 40, 200
# A step of so many posterior sds is the last but one: the error after it is about its square.
CLOSE = 1e-3
# What is left of a step of a block after which the next one would be longer.
SHORTER = 0.25
# Curvature that counts as positive, in the coordinates of the model.
LEAST = 1e-8


class Nested(AbstractConditional):
    """What kinds of nested locals share. Nothing in it is trained: gradients leave its arrays alone.

    `parameters` of the locals at the globals `center`, p for each block, and their `slopes` by the
    globals are where Newton steps for other globals begin.
    """

    target: eqx.AbstractVar[Target]
    center: eqx.AbstractVar[Float[Array, " k"]]
    parameters: eqx.AbstractVar[Float[Array, "p n"]]
    slopes: eqx.AbstractVar[Float[Array, "p k n"]]

    @abc.abstractmethod
    def step(self, g: Float[Array, " k"], x: Float[Array, "p n"]) -> "Newton":
        """One Newton step for the parameters, whose derivative by g is that of the fixed point there."""

    @abc.abstractmethod
    def locals(self, g: Float[Array, " k"], x: Float[Array, "p n"]) -> Locals:
        """The locals with these parameters."""

    @abc.abstractmethod
    def log_marginal_at(self, g: Float[Array, " k"], x: Float[Array, "p n"]) -> Float[Array, ""]:
        """log p(g) up to what the locals' own distribution misses."""

    def at(self, g: Float[Array, " k"]) -> Locals:
        """The locals at the fixed point for these globals."""
        fixed = self.fixed
        return fixed.locals(g, fixed._solution(g))

    def log_marginal(self, g: Float[Array, " k"]) -> Float[Array, ""]:
        """E f(g, z) - log q(z | g) over q(z | g): what q(g) has to follow. Exact as q(z | g) is."""
        fixed = self.fixed
        return fixed.log_marginal_at(g, fixed._solution(g))

    @property
    def fixed(self) -> "Nested":
        """The same without derivatives by its arrays."""
        return jax.lax.stop_gradient(self)

    def density(self, g: Float[Array, " k"], z: Float[Array, "b n"]) -> Float[Array, ""]:
        """f(g, z)."""
        return self.target.log_density(self.structure.join(g, z))

    def _solution(self, g: Float[Array, " k"]) -> Float[Array, "p n"]:
        shift = (g - self.center)[None, :, None]
        start = self.parameters + jnp.sum(self.slopes * shift, axis=1)
        return self.step(g, self.iterate(g, start, MOST)).after

    def iterate(self, g: Float[Array, " k"], x: Float[Array, "p n"], most: int) -> Float[Array, "p n"]:
        """Steps until one is small, without derivatives.

        Blocks are independent, so each has its own length of step: one after which the next step would
        be longer is taken back to a share of it. In a chain they have one length.
        """
        g, x = jax.lax.stop_gradient((g, x))

        def again(state: tuple[Array, ...]) -> Array:
            *_, size, count = state
            return (size > CLOSE) & (count < most)

        def once(state: tuple[Array, ...]) -> tuple[Array, ...]:
            x, base, before, _, count = state
            found = jax.lax.stop_gradient(self.step(g, x))
            sizes = (
                jnp.full_like(before, jnp.max(found.sizes)) if self.structure.chained else found.sizes
            )
            worse = ~(sizes <= before)
            after = jnp.where(worse[None, :], base + SHORTER * (x - base), found.after)
            size = jnp.max(jnp.where(worse, jnp.inf, sizes))
            return (
                after,
                jnp.where(worse[None, :], base, x),
                jnp.where(worse, before, sizes),
                size,
                count + 1,
            )

        infinite = jnp.full((), jnp.inf, x.dtype)
        start = x, x, jnp.full(x.shape[1], jnp.inf, x.dtype), infinite, jnp.zeros((), jnp.int32)
        return jax.lax.while_loop(again, once, start)[0]

    def around(self, g: Float[Array, " k"], x: Float[Array, "p n"]) -> "Nested":
        """The same with its centre at g: parameters solved for from x, and their slopes."""
        x = self.iterate(g, x, MOST_AT_FIRST)
        solved, push = jax.linearize(lambda g: self.step(g, jax.lax.stop_gradient(x)).after, g)
        slopes = jax.vmap(push, out_axes=1)(jnp.eye(self.structure.k, dtype=g.dtype))
        slopes = jnp.where(jnp.all(jnp.isfinite(slopes)), slopes, 0.0)
        return eqx.tree_at(
            lambda own: (own.center, own.parameters, own.slopes), self, (g, solved, slopes)
        )


class Newton(NamedTuple):
    """Parameters after a Newton step, and its size for each block, in the locals' own sds."""

    after: Float[Array, "p n"]
    sizes: Float[Array, " n"]


class NestedLaplace(Nested):
    """Gaussian locals at their mode given the globals. The parameters are the modes.

    A Newton step costs a gradient and b products with the Hessian, 3b in a chain.
    """

    target: Target
    center: Float[Array, " k"]
    parameters: Float[Array, "b n"]
    slopes: Float[Array, "b k n"]
    structure: Structure
    own_structure: Structure

    @classmethod
    def begin(cls, target: Target, structure: Structure, z: Any, g: Any = None) -> "NestedLaplace":
        """Locals that do not follow the globals yet; `around` makes them. Nothing is compiled."""
        z = np.asarray(z)
        g = np.zeros(structure.k) if g is None else g
        slopes = on_device(np.zeros((structure.b, structure.k, structure.n), z.dtype))
        return cls(
            target=target,
            center=on_device(g, z.dtype),
            parameters=on_device(z),
            slopes=slopes,
            structure=structure,
            own_structure=without_globals(structure),
        )

    def curvature(
        self, g: Float[Array, " k"], z: Float[Array, "b n"]
    ) -> tuple[Float[Array, "b n"], BlockMatrix]:
        """The gradient by the locals, and minus the Hessian, made positive definite block by block."""
        shape = z.shape
        gradient, push = jax.linearize(jax.grad(lambda z: self.density(g, z)), z)
        hessian = blocks_of_hessian(
            lambda v: push(v.reshape(shape)).reshape(-1), self.own_structure, np.dtype(z.dtype)
        )
        matrix = jax.tree.map(jnp.negative, hessian)
        if matrix.below is None:
            own = small.make_dominant(matrix.diagonal, LEAST)
            matrix = BlockMatrix(matrix.corner, matrix.border, own)
        return gradient, matrix

    def step(self, g: Float[Array, " k"], x: Float[Array, "b n"]) -> Newton:
        """m + P^-1 df/dz."""
        gradient, matrix = self.curvature(g, x)
        root = jax.lax.stop_gradient(_root(matrix))
        none = jnp.zeros(0, x.dtype)
        moves = root.transposed_times((none, gradient))[1]
        return Newton(x + root.times((none, moves))[1], jnp.max(jnp.abs(moves), axis=0))

    def locals(self, g: Float[Array, " k"], x: Float[Array, "b n"]) -> Locals:
        """A Gaussian with the curvature at the mode."""
        return Locals(x, _root(self.curvature(g, x)[1]))

    def log_marginal_at(self, g: Float[Array, " k"], x: Float[Array, "b n"]) -> Float[Array, ""]:
        """Laplace's f(g, m) + log det L + (bn / 2) log 2 pi."""
        constant = 0.5 * x.size * math.log(2 * math.pi)
        return self.density(g, x) + self.locals(g, x).root.log_det() + constant

    def skewness(self) -> Float[Array, "b n"]:
        """f''' s^3 of each local at the centre: zero where the conditional is Gaussian.

        Third derivatives along the locals' own axes, from three-fold products with the j-th coordinates
        of all blocks at once.
        """
        g, z = self.center, self.parameters
        std = jnp.sqrt(self.locals(g, z).root.variances()[1])

        def along(j: Array) -> Float[Array, " n"]:
            v = jnp.zeros_like(std).at[j].set(std[j])

            def gradient(t: Array) -> Array:
                return jax.grad(lambda z: self.density(g, z))(z + t * v)

            def second(t: Array) -> Array:
                return jax.jvp(gradient, (t,), (jnp.ones_like(t),))[1]

            zero = jnp.zeros((), z.dtype)
            return (jax.jvp(second, (zero,), (jnp.ones_like(zero),))[1] * std)[j]

        return jnp.stack([along(jnp.asarray(j)) for j in range(self.structure.b)])


def _root(matrix: BlockMatrix) -> BlockRoot:
    """LL' = P^-1."""
    return root_of_inverse(matrix, None if matrix.below is None else LEAST).root


def without_globals(structure: Structure) -> Structure:
    """The structure of the locals without the globals, in the order of an array (b, n)."""
    b, n = structure.b, structure.n
    blocks = np.arange(b)[None, :] * n + np.arange(n)[:, None]
    return Structure(np.zeros(0, int), blocks, structure.kind)
