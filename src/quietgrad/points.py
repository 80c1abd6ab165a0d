"""Values and gradients of a log density at points that the host chooses: one program, many uses.

A quasi-Newton method needs some hundred evaluations. Driven from the host they cost a call each, and
the program holds the model once; a line search inside XLA holds it several times and compiles for
seconds. Fixed-draw climbs, gradients for Newton steps and tests of convergence share this program.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .targets import Target

# Points that a call evaluates, and likelihood values (points x rows) that it may hold.
AT_ONCE, VALUES = 32, 2**22
# Columns of a Hessian times rows of data that are worked on at once.
COLUMNS = 2**22


class Points:
    """The log density and its gradient as double precision on the host, whatever computes them."""

    def __init__(self, target: Target, dtype: Any, *, at_once: int = AT_ONCE):
        self._dynamic, static = eqx.partition(target, eqx.is_array)
        leaves, form = jax.tree.flatten(static)
        self._program, self._hessian = _programs(tuple(leaves), form)
        self.dtype = np.dtype(dtype)
        self.at_once = max(1, min(at_once, VALUES // max(1, target.rows, target.dim or 1)))
        self.gradients = 0

    def __call__(
        self, z: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """log density and gradient at each point."""
        count, blocks = len(z), []
        for first in range(0, count, self.at_once):
            block = z[first : first + self.at_once]
            missing = self.at_once - len(block)
            if missing:
                block = np.concatenate([block, np.repeat(block[-1:], missing, axis=0)])
            blocks.append(self._program(self._dynamic, block.astype(self.dtype)))
        self.gradients += count
        values = np.concatenate([np.asarray(v, float) for v, _ in blocks])[:count]
        return values, np.concatenate([np.asarray(g, float) for _, g in blocks])[:count]

    def curvature(
        self, z: Float[np.ndarray, "points dim"], basis: Float[np.ndarray, "dim dim"]
    ) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        """The gradient, and the Hessian in the coordinates of `basis`, B'HB, averaged over the points.

        With a root of the covariance as the basis, the result is near minus one whatever the scales and
        correlations of the coordinates. In single precision their own Hessian would lose the directions
        of little curvature.
        """
        columns = np.ascontiguousarray(basis.T).astype(self.dtype)
        gradient, products = np.zeros(z.shape[1]), np.zeros((z.shape[1], z.shape[1]))
        for first in range(0, len(z), AT_ONCE):
            block = z[first : first + AT_ONCE]
            padded = np.zeros((AT_ONCE, z.shape[1]), self.dtype)
            padded[: len(block)] = block
            some = self._hessian(self._dynamic, padded, columns, np.int32(len(block)))
            share = len(block) / len(z)
            gradient += share * np.asarray(some[0], float)
            products += share * np.asarray(some[1], float)
        hessian = products @ columns.astype(float).T
        return gradient, 0.5 * (hessian + hessian.T)

    def has_curvature(self, dim: int) -> bool:
        """Whether the target can be differentiated twice by JAX."""
        point, basis = (jax.ShapeDtypeStruct((n, dim), self.dtype) for n in (AT_ONCE, dim))
        count = jax.ShapeDtypeStruct((), np.int32)
        try:
            jax.eval_shape(self._hessian, self._dynamic, point, basis, count)
        except (TypeError, ValueError, NotImplementedError):  # what JAX raises where no rule is known
            return False
        return True


@functools.lru_cache(maxsize=64)
def _programs(leaves: tuple[Any, ...], form: Any) -> tuple[Any, Any]:
    """The compiled functions of targets that differ in their arrays only.

    Flat, because a target may hold a dict of data, which has no hash.
    """
    static = jax.tree.unflatten(form, leaves)

    def values(dynamic: Target, z: Float[Array, "points dim"]) -> tuple[Array, Array]:
        target: Target = eqx.combine(dynamic, static)
        return jax.vmap(jax.value_and_grad(target.log_density))(z)

    def curvature(
        dynamic: Target,
        z: Float[Array, "points dim"],
        basis: Float[Array, "dim dim"],
        count: Int[Array, ""],
    ) -> tuple[Array, Array]:
        target: Target = eqx.combine(dynamic, static)
        dim = z.shape[1]
        columns = max(1, min(dim, COLUMNS // max(1, target.rows)))

        def add(i: Int[Array, ""], sums: tuple[Array, Array]) -> tuple[Array, Array]:
            gradient, push = jax.linearize(jax.grad(target.log_density), z[i])
            return sums[0] + gradient, sums[1] + jax.lax.map(push, basis, batch_size=columns)

        zero = (jnp.zeros(dim, z.dtype), jnp.zeros((dim, dim), z.dtype))
        gradient, hessian = jax.lax.fori_loop(0, count, add, zero)
        number = count.astype(z.dtype)
        return gradient / number, hessian / number

    return jax.jit(values), jax.jit(curvature)
