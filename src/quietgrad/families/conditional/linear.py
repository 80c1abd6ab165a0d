"""Locals whose means and log scales are linear in the globals: learned, without a look at the target."""

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ...structure import BlockRoot, Structure
from ..structured.triangles import from_log_diagonal, pack, unpack
from .locals import AbstractConditional, Locals, local_root


class LinearLocals(AbstractConditional):
    """Means m_i + B_i g and roots L_i diag(exp(S_i g)).

    `scale` is L_i, packed; `mean_slope` and `scale_slope` are B_i and S_i. A structured Gaussian has
    S_i = 0. In a chain blocks are tied as `transition` says, whatever the globals.
    """

    mean: Float[Array, "b n"]
    scale: Float[Array, "triangle n"]
    mean_slope: Float[Array, "b k n"]
    scale_slope: Float[Array, "b k n"]
    transition: Float[Array, "b b before"] | None
    structure: Structure

    @classmethod
    def independent(
        cls, mean: Float[Array, "b n"], log_std: Float[Array, "b n"], structure: Structure
    ) -> "LinearLocals":
        """Locals that follow nothing, at first."""
        k, b, n = structure.k, structure.b, structure.n
        flat = jnp.zeros((b, k, n), mean.dtype)
        tie = jnp.zeros((b, b, max(0, n - 1)), mean.dtype) if structure.chained else None
        return cls(
            mean=mean,
            scale=from_log_diagonal(log_std),
            mean_slope=flat,
            scale_slope=flat,
            transition=tie,
            structure=structure,
        )

    @classmethod
    def of_gaussian(
        cls, loc: Float[Array, " dim"], root: BlockRoot, structure: Structure
    ) -> "LinearLocals":
        """Those of a structured Gaussian: with e_g = G^-1 (g - loc_g), m_i = loc_i + B_i e_g."""
        center, mean = structure.split(loc)
        slope = root.responses()
        if structure.k:
            turned = slope.transpose(0, 2, 1).reshape(-1, structure.k)
            turned = solve_triangular(root.corner, turned.T, lower=True, trans="T").T
            slope = turned.reshape(structure.b, structure.n, structure.k).transpose(0, 2, 1)
        mean = mean - jnp.sum(slope * center[None, :, None], axis=1)
        return cls(
            mean=mean,
            scale=pack(root.diagonal),
            mean_slope=slope,
            scale_slope=jnp.zeros_like(slope),
            transition=root.transition,
            structure=structure,
        )

    def at(self, g: Float[Array, " k"]) -> Locals:
        """Linear means and log scales."""
        mean = self.mean + jnp.sum(self.mean_slope * g[None, :, None], axis=1)
        grown = jnp.exp(jnp.sum(self.scale_slope * g[None, :, None], axis=1))
        diagonal = unpack(self.scale, self.structure.b) * grown[None, :, :]
        return Locals(mean, local_root(diagonal, self.transition))
