"""Autoregressive layers and couplings whose path score needs no inverse pass.

Coordinates come in `blocks`; those of a block are moved given the ones before it, each by a map of one
coordinate (`elementwise.py`), v_j = tau(u_j; p_j(u_before)). One block for each coordinate is an inverse
autoregressive layer (Kingma et al. 2016), which draws in one pass; two blocks are a coupling. With
  p_j = c_j + V_j silu(b + sum_i W_i u_i) + (S_j u + R_j (sqrt(1 + u^2) - 1) for log scale and shift),
sums are over the coordinates before the block: hidden units are running sums (Larochelle & Murray
2011), and there is a term for each pair of coordinates, in which a funnel is one number.
The Jacobian J is triangular and known in closed form, and the score is s' = J^-T (s - grad log|det J|).
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from .elementwise import AbstractElementwise
from .flow import AbstractLayer


class Autoregressive(AbstractLayer):
    """One layer, followed by a reversal of the coordinates, so that layers of one kind take turns."""

    inputs: Float[Array, "dim hidden"]
    bias: Float[Array, " hidden"]
    outputs: Float[Array, "dim parameters hidden"]
    constants: Float[Array, "dim parameters"]
    slopes: Float[Array, "2 dim dim"]
    bends: Float[Array, "2 dim dim"]
    elementwise: AbstractElementwise = eqx.field(static=True)
    blocks: int = eqx.field(static=True)

    @classmethod
    def identity(
        cls,
        inputs: Float[Array, "dim hidden"],
        bias: Float[Array, " hidden"],
        elementwise: AbstractElementwise,
        blocks: int,
    ) -> "Autoregressive":
        """Hidden units that nothing listens to."""
        (dim, hidden), count, dtype = inputs.shape, elementwise.parameters, inputs.dtype
        return cls(
            inputs,
            bias,
            jnp.zeros((dim, count, hidden), dtype),
            jnp.zeros((dim, count), dtype),
            jnp.zeros((2, dim, dim), dtype),
            jnp.zeros((2, dim, dim), dtype),
            elementwise,
            blocks,
        )

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of u, reversed, and the sum of the log slopes."""
        v, log_slope = jax.vmap(self.elementwise.forward)(u, self._parameters(u)[0])
        return v[::-1], jnp.sum(log_slope)

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """J's s' = s - grad log|det J|: what a coordinate's score owes to later ones is put in until
        nothing changes, at most as often as there are blocks."""
        image, log_det = self.forward(u)
        # Nobody differentiates a score: sticking the landing drops what it would add.
        still, u, score = jax.lax.stop_gradient((self, u, score))
        (p, _), pull_back = jax.vjp(still._parameters, u)

        def gradients(u: Float[Array, ""], p: Float[Array, " parameters"]) -> tuple[Array, ...]:
            (_, log_slope), pull = jax.vjp(self.elementwise.forward, u, p)
            zero, one = jnp.zeros_like(u), jnp.ones_like(u)
            return log_slope, *pull((zero, one)), pull((one, zero))[1]

        log_slope, slope_by_u, slope_by_p, image_by_p = jax.vmap(gradients)(u, p)

        def through(by_p: Float[Array, "dim parameters"]) -> Float[Array, " dim"]:
            return pull_back((by_p, jnp.zeros((u.size, self.bias.size), u.dtype)))[0]

        right, slope = score - slope_by_u - through(slope_by_p), jnp.exp(log_slope)

        def unfinished(carry: tuple[Array, Array, Array]) -> Array:
            pushed, before, number = carry
            return (number < self.blocks) & jnp.any(pushed != before)

        def again(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            pushed, _, number = carry
            return (right - through(image_by_p * pushed[:, None])) / slope, pushed, number + 1

        first = right / slope
        start = first, jnp.full_like(first, jnp.inf), jnp.ones((), jnp.int32)
        pushed, *_ = jax.lax.while_loop(unfinished, again, start)
        return image, log_det, pushed[::-1]

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Block by block; a last Newton step carries the derivatives."""
        v = v[::-1]
        still = jax.lax.stop_gradient(self)

        block = self._block(v.size)

        def next_block(number: Int[Array, ""], u: Float[Array, " dim"]) -> Float[Array, " dim"]:
            found = jax.vmap(still.elementwise.inverse)(
                jax.lax.stop_gradient(v), still._parameters(u)[0]
            )
            # The others are not known yet, and may be anything.
            return jnp.where(block == number, found, u)

        u = jax.lax.stop_gradient(jax.lax.fori_loop(0, self.blocks, next_block, jnp.zeros_like(v)))
        p, preactivation = still._parameters(u)
        _, log_slope = jax.vmap(still.elementwise.forward)(u, p)
        image_by_p = jax.vmap(jax.grad(lambda u, p: still.elementwise.forward(u, p)[0], 1))(u, p)
        jacobian = still._jacobian(u, preactivation, image_by_p) + jnp.diag(jnp.exp(log_slope))
        gap = self.forward(u)[0][::-1] - v
        return u - solve_triangular(jax.lax.stop_gradient(jacobian), gap, lower=True)

    def _shares(self) -> Float[Array, "dim parameters hidden"]:
        """V: the sum of many hidden units is of the size of one."""
        return self.outputs / math.sqrt(self.bias.size)

    def _block(self, dim: int) -> np.ndarray:
        """The number of each coordinate's block; in one dimension of two blocks the first is empty."""
        ends = np.linspace(0, dim, self.blocks + 1).astype(int)[1:]
        return np.searchsorted(ends, np.arange(dim), side="right")

    def _before(self, dim: int) -> np.ndarray:
        """How many coordinates come before the block of each."""
        block = self._block(dim)
        return np.searchsorted(block, block)

    def _mask(self, dim: int, dtype: Any) -> np.ndarray:
        return (np.arange(dim)[None, :] < self._before(dim)[:, None]).astype(dtype)

    def _parameters(
        self, u: Float[Array, " dim"]
    ) -> tuple[Float[Array, "dim parameters"], Float[Array, "dim hidden"]]:
        """Of every coordinate's map, and the sums that enter its hidden units."""
        # A product with the mask: running sums, gathers and scatters are slow on processors.
        mask = self._mask(u.size, u.dtype)
        preactivation = self.bias[None] + mask @ (u[:, None] * self.inputs)
        p = self.constants + jnp.einsum("jph,jh->jp", self._shares(), jax.nn.silu(preactivation))
        bent = jnp.sqrt(1 + u**2) - 1
        pairs = (mask[None] * self.slopes) @ u + (mask[None] * self.bends) @ bent
        return p + jnp.pad(pairs.T, ((0, 0), (0, p.shape[1] - 2))), preactivation

    def _jacobian(
        self,
        u: Float[Array, " dim"],
        preactivation: Float[Array, "dim hidden"],
        image_by_p: Float[Array, "dim parameters"],
    ) -> Float[Array, "dim dim"]:
        """dv_j/du_i by the parameters of v_j, for i before the block of j."""
        active = jax.nn.sigmoid(preactivation) * (1 + preactivation * jax.nn.sigmoid(-preactivation))
        by_hidden = jnp.einsum("jp,jph->jh", image_by_p, self._shares()) * active
        by_pairs = self.slopes + self.bends * (u / jnp.sqrt(1 + u**2))[None, None]
        whole = by_hidden @ self.inputs.T + jnp.einsum("jp,pji->ji", image_by_p[:, :2], by_pairs)
        return whole * self._mask(u.size, u.dtype)


class Stack(AbstractLayer):
    """Layers of one kind and size, first to last, by a loop inside the program.

    `layers` has the parameters of all of them along the first axis of each array: compiling takes as
    long for many as for one.
    """

    layers: Autoregressive

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return self.layers.bias.shape[0]

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """Through all layers."""
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def each(u: Array, arrays: Autoregressive) -> tuple[Array, Array]:
            return eqx.combine(arrays, static).forward(u)

        u, log_dets = jax.lax.scan(each, u, arrays)
        return self._in_order(u), jnp.sum(log_dets)

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """Through all layers."""
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def each(
            carry: tuple[Array, Array], arrays: Autoregressive
        ) -> tuple[tuple[Array, Array], Array]:
            u, log_det, score = eqx.combine(arrays, static).forward_with_score(*carry)
            return (u, score), log_det

        (u, score), log_dets = jax.lax.scan(each, (u, score), arrays)
        return self._in_order(u), jnp.sum(log_dets), self._in_order(score)

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Through all layers, last to first."""
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def each(v: Array, arrays: Autoregressive) -> tuple[Array, None]:
            return eqx.combine(arrays, static).inverse(v), None

        return jax.lax.scan(each, self._in_order(v), arrays, reverse=True)[0]

    def _in_order(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Undo the last reversal of an odd number of them."""
        return u[::-1] if self.depth % 2 else u
