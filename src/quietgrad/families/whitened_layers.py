"""Flows of autoregressive layers, or of spline couplings, in the coordinates of a Gaussian.

z = mu + C w, where N(mu, C C') is a Gaussian fit that stays as it is, and w is what the layers make of
the base draw: at first the draw itself. Layers are a loop inside the program, so that compiling does not
take longer for more of them.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from .._util.checks import whole
from .autoregressive import Autoregressive, Stack
from .bases import AbstractBase, Normal
from .elementwise import AbstractElementwise, Affine, RationalQuadratic
from .family import AbstractFamily
from .flow import AbstractFlow, AbstractLayer, ShiftScale
from .full_rank import FullRank
from .mean_field import MeanField
from .whitened_flow import Whitening

LAYERS, HIDDEN = 4, 16


class AutoregressiveFlow(AbstractFlow):
    """`depth` inverse autoregressive affine layers, in both orders of the coordinates in turn.

    Follows necks and bends: the scale and the place of a coordinate depend on those before it.
    """

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        depth: int = LAYERS,
        hidden: int = HIDDEN,
        base: AbstractBase = Normal(),
    ) -> "AutoregressiveFlow":
        """Random hidden units that nothing listens to: the base draw itself."""
        layers = _layers(dim, Affine(), dim, depth, hidden, base, key)
        return cls(layers=layers, size=dim, base=base)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "AutoregressiveFlow":
        """Layers that move nothing, seen through the Gaussian."""
        layers = _around(self, other, key=key)
        return AutoregressiveFlow(layers=layers, size=self.size, base=self.base)


class SplineFlow(AbstractFlow):
    """`depth` couplings that move one half of the coordinates by rational-quadratic splines, in turn.

    Follows several modes and other tails, too: each coordinate's map has `bins` slopes of its own. With
    `blocks` = dim the layers are autoregressive.
    """

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        depth: int = LAYERS,
        hidden: int = HIDDEN,
        bins: int = 8,
        blocks: int = 2,
        base: AbstractBase = Normal(),
    ) -> "SplineFlow":
        """Random hidden units that nothing listens to: the base draw itself."""
        bins, blocks = whole(bins, "bins", least=2), whole(blocks, "blocks", least=1)
        layers = _layers(dim, RationalQuadratic(bins), blocks, depth, hidden, base, key)
        return cls(layers=layers, size=dim, base=base)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "SplineFlow":
        """Layers that move nothing, seen through the Gaussian."""
        return SplineFlow(layers=_around(self, other, key=key), size=self.size, base=self.base)


def _layers(
    dim: int,
    elementwise: AbstractElementwise,
    blocks: int,
    depth: int,
    hidden: int,
    base: AbstractBase,
    key: Key[Array, ""],
) -> tuple[AbstractLayer, ...]:
    """A stack, a shift and scale, and a unit Gaussian."""
    dim, depth = whole(dim, "dim", least=1), whole(depth, "depth", least=1)
    hidden = whole(hidden, "hidden", least=1)

    def layer(key: Key[Array, ""]) -> Autoregressive:
        return Autoregressive.init(dim, elementwise, blocks, hidden, key=key)

    stack = Stack(eqx.filter_vmap(layer)(jr.split(key, depth)))
    unit = FullRank.unit(dim, jnp.zeros(()).dtype, base)
    return stack, ShiftScale.identity(dim, unit.dtype), Whitening(unit)


def _around(
    flow: AbstractFlow, other: AbstractFamily, *, key: Key[Array, ""]
) -> tuple[AbstractLayer, ...]:
    """The flow's layers without effect, in the coordinates of a Gaussian."""
    stack = flow.layers[0]
    assert isinstance(stack, Stack)
    assert isinstance(stack.layers, Autoregressive)
    gaussian = FullRank.unit(flow.dim, other.dtype, flow.base).start_from(other, key=key)
    assert isinstance(gaussian, FullRank)

    def cast(x: Any) -> Any:
        return x.astype(other.dtype) if eqx.is_inexact_array(x) else x

    still = jax.tree.map(cast, stack.layers.identity())
    return Stack(still), ShiftScale.identity(flow.dim, other.dtype), Whitening(gaussian)
