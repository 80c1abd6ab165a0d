"""Real NVP (Dinh et al. 2017) as the paper's appendix has it, and a variant that can leave the origin.

The paper's flow bounds each coordinate's log scale by one (tanh), so it cannot fit a posterior whose
scales are far from one; `AffineRealNVP` adds a learned shift and scale of every coordinate at the end.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .bases import AbstractBase, Normal
from .family import AbstractFamily
from .flow import AbstractFlow, AbstractLayer, ShiftScale
from .mean_field import MeanField

HIDDEN_WIDTHS = (8, 16, 16)
# The standard deviation of a standard normal draw that is known to lie within two of them.
TRUNCATED_STD = 0.87962566103423978


class Network(eqx.Module):
    """A ReLU network with a linear last layer."""

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    @classmethod
    def init(
        cls, inputs: int, outputs: int, widths: tuple[int, ...], *, key: Key[Array, ""]
    ) -> "Network":
        """Glorot normal weights and zero biases."""
        sizes = (inputs, *widths, outputs)
        shapes = list(zip(sizes[:-1], sizes[1:], strict=True))
        keys = jr.split(key, len(shapes))
        return cls(glorot_normal(keys, shapes), tuple(jnp.zeros(width) for width in sizes[1:]))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The network's output at x."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]

    def silent(self) -> "Network":
        """The same network with its last layer zero, so that its output is."""
        weight, bias = jnp.zeros_like(self.weights[-1]), jnp.zeros_like(self.biases[-1])
        return Network((*self.weights[:-1], weight), (*self.biases[:-1], bias))


def glorot_normal(
    keys: Key[Array, " layers"], shapes: Sequence[tuple[int, int]]
) -> tuple[Float[Array, "_ _"], ...]:
    """What `jax.nn.initializers.glorot_normal` gives for each key and shape, drawn all at once.

    A draw depends on its key and place only. One generator for all layers compiles in a fraction of the
    time that one for each would take.
    """
    most = max(1, *(rows * columns for rows, columns in shapes))
    drawn = jax.vmap(lambda key: jr.truncated_normal(key, -2.0, 2.0, (most,)))(keys)
    return tuple(
        # With dim = 1 one side of the cut is empty, and Glorot's rule would divide by zero.
        math.sqrt(2 / max(1, sum(shape))) / TRUNCATED_STD * row[: math.prod(shape)].reshape(shape)
        for row, shape in zip(drawn, shapes, strict=True)
    )


class Coupling(AbstractLayer):
    """u' = u exp(a(c)) + t(c) with c unchanged, a = tanh(scale network), t = shift network.

    The point is cut at `cut`; `first_moves` tells which side is u and which is c.
    """

    scale: Network
    shift: Network
    cut: int = eqx.field(static=True)
    first_moves: bool = eqx.field(static=True)

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of the point and the sum of the log scales."""
        moved, kept = self._split(u)
        log_scale, shift = self._condition(kept)
        return self._join(moved * jnp.exp(log_scale) + shift, kept), jnp.sum(log_scale)

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """s_u' = s_u exp(-a);  s_c' = s_c - VJP_a[1 + u s_u] - VJP_t[s_u']."""
        moved, kept = self._split(u)
        score_moved, score_kept = self._split(score)
        (log_scale, shift), pull_back = jax.vjp(self._condition, kept)
        new_score = score_moved * jnp.exp(-log_scale)
        (through_kept,) = pull_back((1 + moved * score_moved, new_score))
        image = self._join(moved * jnp.exp(log_scale) + shift, kept)
        return image, jnp.sum(log_scale), self._join(new_score, score_kept - through_kept)

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The point whose image is v."""
        moved, kept = self._split(v)
        log_scale, shift = self._condition(kept)
        return self._join((moved - shift) * jnp.exp(-log_scale), kept)

    def identity(self) -> "Coupling":
        """The same layer with silent networks, which moves nothing."""
        return Coupling(self.scale.silent(), self.shift.silent(), self.cut, self.first_moves)

    def _condition(
        self, kept: Float[Array, " kept"]
    ) -> tuple[Float[Array, " moved"], Float[Array, " moved"]]:
        return jnp.tanh(self.scale(kept)), self.shift(kept)

    def _split(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " moved"], Float[Array, " kept"]]:
        first, second = u[: self.cut], u[self.cut :]
        return (first, second) if self.first_moves else (second, first)

    def _join(self, moved: Float[Array, " moved"], kept: Float[Array, " kept"]) -> Float[Array, " dim"]:
        return jnp.concatenate([moved, kept] if self.first_moves else [kept, moved])


class RealNVP(AbstractFlow):
    """The paper's flow: alternating couplings whose first one keeps the first dim // 2 coordinates."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        couplings: int = 2,
        widths: tuple[int, ...] = HIDDEN_WIDTHS,
        base: AbstractBase = Normal(),
    ) -> "RealNVP":
        """Glorot normal networks, the paper's start."""
        layers = couplings_of(dim, couplings, widths, key=key)
        return cls(layers=layers, size=dim, base=base)


class AffineRealNVP(AbstractFlow):
    """`RealNVP` followed by a learned shift and scale of every coordinate, at first the identity."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        couplings: int = 2,
        widths: tuple[int, ...] = HIDDEN_WIDTHS,
        base: AbstractBase = Normal(),
    ) -> "AffineRealNVP":
        """The same couplings as `RealNVP.init` with this key, then the identity."""
        layers = couplings_of(dim, couplings, widths, key=key)
        return cls(layers=(*layers, ShiftScale.identity(dim)), size=dim, base=base)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "AffineRealNVP":
        """Couplings that move nothing, then the mean-field member's shift and scale."""
        del key
        assert isinstance(other, MeanField)
        still = [layer.identity() for layer in self.layers if isinstance(layer, Coupling)]
        layers = (*still, ShiftScale(other.loc, other.log_std))
        return AffineRealNVP(layers=layers, size=self.size, base=self.base)


def couplings_of(
    dim: int, count: int, widths: tuple[int, ...], *, key: Key[Array, ""]
) -> tuple[Coupling, ...]:
    """`count` couplings that move the halves in turn."""
    dim, count = whole(dim, "dim", least=1), whole(count, "couplings", least=1)
    return tuple(
        _coupling(dim, first_moves=bool(index % 2), widths=widths, key=k)
        for index, k in enumerate(jr.split(key, count))
    )


def _coupling(dim: int, *, first_moves: bool, widths: tuple[int, ...], key: Key[Array, ""]) -> Coupling:
    cut = dim // 2
    moved, kept = (cut, dim - cut) if first_moves else (dim - cut, cut)
    key_scale, key_shift = jr.split(key)
    scale = Network.init(kept, moved, widths, key=key_scale)
    return Coupling(scale, Network.init(kept, moved, widths, key=key_shift), cut, first_moves)
