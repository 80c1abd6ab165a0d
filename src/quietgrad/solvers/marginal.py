"""The marginal density of a hierarchy's globals on the host: one program for all that its fit asks.

log p(g) is that of nested locals (`families/conditional`): k numbers in, a value and k slopes out, at
the cost of some gradients of the target. A fit of q(g) is then one in k dimensions, whatever n.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics.lapack import over_points
from .._util.device import on_device
from ..families.conditional import Nested, NestedLaplace, NestedSkewed
from ..session import Recorder

# Points that a call has room for, those worked on together, and numbers that these may hold.
ROOM, TOGETHER, HELD = 32, 8, 2**16


class Marginal(NamedTuple):
    """Values and slopes of log p(g) for nested locals."""

    nested: Nested
    session: Recorder
    # Third derivatives f_iii s_i^3 at the centre, zero where the locals' conditionals are Gaussian.
    skewness: Float[np.ndarray, "b n"] = np.zeros((0, 0))

    def __call__(
        self, g: Float[np.ndarray, "points k"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points k"]]:
        """At each point, as double precision."""
        structure, (count, k) = self.nested.structure, g.shape
        # A power of two, so that it divides the room.
        together = max(1, min(TOGETHER, HELD // max(1, structure.n * structure.b)))
        together = 2 ** (together.bit_length() - 1)
        found = []
        for first in range(0, count, ROOM):
            self.session.check()
            some = g[first : first + ROOM]
            block = np.empty((ROOM, k), self.dtype)
            block[: len(some)], block[len(some) :] = some, some[-1]
            shaped = on_device(block.reshape(-1, together, k))
            needed = on_device(-(-len(some) // together), np.int32)
            value, slope = jax.device_get(_marginals(self.nested, shaped, needed))
            found.append((value.reshape(-1)[: len(some)], slope.reshape(-1, k)[: len(some)]))
        values, slopes = (np.concatenate(part).astype(float) for part in zip(*found, strict=True))
        return values, slopes

    @property
    def dtype(self) -> np.dtype:
        """The precision of the program."""
        return np.dtype(self.nested.center.dtype)

    def recentred(self, g: Float[np.ndarray, " k"]) -> "Marginal":
        """Predictions of the locals that begin at g, where the density is to be known best."""
        nested, skewness = _around(self.nested, on_device(g, self.dtype))
        return self._replace(nested=nested, skewness=np.asarray(skewness, float))

    def skewed(self) -> "Marginal":
        """The same with skewed locals in place of Gaussian ones."""
        assert isinstance(self.nested, NestedLaplace)
        return self._replace(nested=_skewed(self.nested))


@eqx.filter_jit
def _marginals(
    nested: Nested, g: Float[Array, "blocks points k"], needed: Int[Array, ""]
) -> tuple[Float[Array, "blocks points"], Float[Array, "blocks points k"]]:
    def block(i: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        value, slope = over_points(jax.value_and_grad(nested.log_marginal), g[i])
        return found[0].at[i].set(value), found[1].at[i].set(slope)

    nothing = jnp.full(g.shape[:2], -jnp.inf, g.dtype), jnp.zeros_like(g)
    return jax.lax.fori_loop(0, needed, block, nothing)


@eqx.filter_jit
def _around(nested: Nested, g: Float[Array, " k"]) -> tuple[Nested, Float[Array, "b n"]]:
    start = nested.parameters + jnp.sum(nested.slopes * (g - nested.center)[None, :, None], axis=1)
    found = nested.around(g, start)
    return found, found.skewness() if isinstance(found, NestedLaplace) else jnp.zeros((0, 0), g.dtype)


@eqx.filter_jit
def _skewed(nested: NestedLaplace) -> NestedSkewed:
    made = NestedSkewed.start(nested)
    found = made.around(made.center, made.parameters)
    assert isinstance(found, NestedSkewed)
    return found
