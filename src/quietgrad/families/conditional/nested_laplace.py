"""Nested Laplace: given the globals, the locals' own mode and curvature (Rue et al. 2009).

  m(g) = argmax_z f(g, z),    P(g) = -d^2 f / dz^2 at (g, m(g)),    q(z | g) = N(m(g), P(g)^-1).
It is exact where the conditional is Gaussian, in one step.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._util.device import on_device
from ...structure import BlockMatrix, BlockRoot, Structure, blocks_of_hessian, root_of_inverse
from ...structure import small_matrices as small
from ...structure.hessian import probes, trace_probes
from ...targets import Target
from .locals import Locals
from .nested import Nested, Newton, Solution
from .shorter import shorter

# Curvature that counts as positive, in the coordinates of the model.
LEAST = 1e-8


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
        """Locals whose modes for all globals are looked for from z. Nothing is compiled."""
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
        density = shorter(self.density, g, z)
        gradient, push = jax.linearize(jax.grad(lambda z: density(g, z)), z)
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
        root = _root(matrix)
        known, none = jax.lax.stop_gradient(root), jnp.zeros(0, x.dtype)
        moves = known.transposed_times((none, gradient))[1]
        return Newton(x + known.times((none, moves))[1], jnp.max(jnp.abs(moves), axis=0), root)

    def locals(self, found: Solution) -> Locals:
        """A Gaussian with the curvature at the mode."""
        return Locals(found.x, found.root)

    def log_marginal_at(self, g: Float[Array, " k"], found: Solution) -> Float[Array, ""]:
        """Laplace's f(g, m) + log det L + (bn / 2) log 2 pi."""
        return self.density(g, found.x) + self._volume(found)

    def _volume(self, found: Solution) -> Float[Array, ""]:
        return found.root.log_det() + 0.5 * found.x.size * math.log(2 * math.pi)

    def marginal_and_slope(
        self, g: Float[Array, " k"], found: Solution
    ) -> tuple[Float[Array, ""], Float[Array, " k"]]:
        """The gradient of f - log det P / 2 along m(g), without derivatives of factors.

        With S = P^-1 where P is not zero, -d log det P = <S, dH>, a sum of w'dH c over the columns c of
        the probes: third derivatives of f along two vectors at a time, and no derivative of how blocks
        are read from products. dm/dg = S d^2f/dzdg is pulled back: one product with the Hessian.
        """
        x, root = found
        own = root.spreads()
        tie = None if root.transition is None else small.product(root.transition, own[:, :, :-1])
        if x.shape[0] == 1 and tie is None:
            # Curvature that `curvature` has raised to the least does not follow that of f.
            own = jnp.where(own * LEAST < 0.5, own, 0.0)
        local = self.own_structure
        columns = jax.vmap(lambda v: v.reshape(x.shape))(probes(local, np.dtype(x.dtype)))
        weights = trace_probes(local, own, tie)

        density = shorter(self.density, g, x)
        gradients = shorter(jax.value_and_grad(density, argnums=(0, 1)), g, x)

        def bent(c: Float[Array, "b n"], w: Float[Array, "b n"]) -> Any:
            def along(z: Float[Array, "b n"]) -> Any:
                return jax.jvp(lambda z: gradients(g, z)[1], (z,), (w,))[1]

            return jax.jvp(along, (x,), (c,))[1]

        value, (by_g, by_z) = gradients(g, x)
        third_g, third_z = jax.vmap(bent)(columns, weights)
        by_g, by_z = (
            by_g + 0.5 * jnp.sum(third_g, axis=0),
            by_z + 0.5 * jnp.sum(third_z, axis=0),
        )
        none = jnp.zeros(0, x.dtype)
        moved = root.times(root.transposed_times((none, by_z)))[1]
        through = jax.jvp(lambda z: gradients(g, z)[1][0], (x,), (moved,))[1]
        return value + self._volume(found), by_g + through


def _root(matrix: BlockMatrix) -> BlockRoot:
    """LL' = P^-1."""
    return root_of_inverse(matrix, None if matrix.below is None else LEAST).root


def without_globals(structure: Structure) -> Structure:
    """The structure of the locals without the globals, in the order of an array (b, n)."""
    b, n = structure.b, structure.n
    blocks = np.arange(b)[None, :] * n + np.arange(n)[:, None]
    return Structure(np.zeros(0, int), blocks, structure.kind)
