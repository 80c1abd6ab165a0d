"""Flows of autoregressive layers, or of spline couplings, in the coordinates of a Gaussian.

z = mu + C w, where N(mu, C C') is a Gaussian fit that stays as it is, and w is what the layers make of
the base draw: at first the draw itself. Layers are a loop inside the program, so that compiling does not
take longer for more of them.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .._util.checks import whole
from .._util.device import on_device
from .autoregressive import Autoregressive, Stack
from .bases import AbstractBase, Normal
from .elementwise import AbstractElementwise, Affine, RationalQuadratic
from .family import AbstractFamily, Advice
from .flow import AbstractFlow, AbstractLayer, ShiftScale
from .full_rank import FullRank
from .mean_field import MeanField
from .whitened_flow import Whitening

LAYERS, HIDDEN = 4, 16
ADVICE = Advice(
    quiet_draws=10,
    search_draws=64,
    search_sampler="rqmc",
    search_entropy="stl",
    explore_rate=0.02,
    anneal_rate=0.01,
    most_anneal_rate=0.02,
    near_rate=0.01,
)


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

    @property
    def advice(self) -> Advice:
        """Many draws, as Agrawal & Domke (2024) found for flows: steps are cheap."""
        return ADVICE

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

    @property
    def advice(self) -> Advice:
        """Many draws, as Agrawal & Domke (2024) found for flows: steps are cheap."""
        return ADVICE

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
    # Spread out, so that units bend at different places.
    inputs, bias = jr.normal(key, (depth, dim, hidden)), jr.normal(jr.fold_in(key, 1), (depth, hidden))
    layers = jax.vmap(lambda w, b: Autoregressive.identity(w, b, elementwise, blocks))(inputs, bias)
    unit = FullRank.unit(dim, inputs.dtype, base)
    return Stack(layers), ShiftScale.identity(dim, inputs.dtype), Whitening(unit)


def _around(
    flow: AbstractFlow, other: AbstractFamily, *, key: Key[Array, ""]
) -> tuple[AbstractLayer, ...]:
    """The flow's layers without effect, in the coordinates of a Gaussian."""
    stack = flow.layers[0]
    assert isinstance(stack, Stack)
    gaussian = FullRank.unit(flow.dim, other.dtype, flow.base).start_from(other, key=key)
    assert isinstance(gaussian, FullRank)
    old, dtype = stack.layers, other.dtype
    still = jax.vmap(lambda w, b: Autoregressive.identity(w, b, old.elementwise, old.blocks))(
        old.inputs.astype(dtype), old.bias.astype(dtype)
    )
    return Stack(still), ShiftScale.identity(flow.dim, dtype), Whitening(gaussian)


def deeper(flow: AbstractFlow, more: AbstractFlow) -> AbstractFlow:
    """The flow with the layers of another, which moves nothing yet, before its own."""
    first, own = more.layers[0], flow.layers[0]
    assert isinstance(first, Stack)
    assert isinstance(own, Stack)

    def joined(new: Any, old: Any) -> Any:
        if not eqx.is_array(new):
            return new
        return on_device(np.concatenate([np.asarray(new, old.dtype), np.asarray(old)]))

    # Layers in turn reverse the coordinates, so that an even number of new ones keeps their order.
    stack = Stack(jax.tree.map(joined, first.layers, own.layers))
    return eqx.tree_at(lambda q: q.layers[0], flow, stack)
