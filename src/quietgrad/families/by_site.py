"""A product of families over groups of coordinates: q(z) = prod_k q_k(z_k), each of its own kind.

z_k = T_k(e_k), with e = (e_1, ..., e_K) and coordinates of a group anywhere among all. Draws, densities
and scores are those of the parts, put in their places.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .bases import AbstractBase, Normal
from .family import AbstractFamily, HasEntropy
from .mean_field import MeanField

# Where a group's coordinates are: stretches from a first to before a last one.
Stretches = tuple[tuple[int, int], ...]


class BySite(AbstractFamily):
    """Independent `parts`, the k-th at the coordinates `places[k]`, all on the same base."""

    parts: tuple[AbstractFamily, ...]
    places: tuple[Stretches, ...] = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    def __check_init__(self):
        taken = [i for stretches in self.places for first, last in stretches for i in range(first, last)]
        sizes = [sum(last - first for first, last in stretches) for stretches in self.places]
        if sorted(taken) != list(range(len(taken))) or sizes != [part.dim for part in self.parts]:
            raise ValueError(
                f"the places {self.places} must take every coordinate once, and have the sizes of the "
                f"parts, {[part.dim for part in self.parts]}"
            )

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], base: AbstractBase = Normal()) -> "BySite":
        """Two halves, both mean-field."""
        half = whole(dim, "dim", least=2) // 2
        keys = jr.split(key)
        sizes = half, dim - half
        parts = tuple(MeanField.init(n, key=k, base=base) for n, k in zip(sizes, keys, strict=True))
        return cls(parts=parts, places=(((0, half),), ((half, dim),)), base=base)

    @property
    def dim(self) -> int:
        """Length of z."""
        return sum(part.dim for part in self.parts)

    @property
    def base_dim(self) -> int:
        """That of all parts."""
        return sum(part.base_dim for part in self.parts)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "BySite":
        """Every part from its coordinates of a mean-field member, if it can."""
        assert isinstance(other, MeanField)
        parts = []
        for part, at, own in zip(self.parts, self._indices, jr.split(key, len(self.parts)), strict=True):
            begin = MeanField(other.loc[at], other.log_std[at], other.base)
            parts.append(part.start_from(begin, key=own) if part.contains(begin) else part)
        return eqx.tree_at(lambda q: q.parts, self, tuple(parts))

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """Every part's own."""
        return self._joined([part.transport(x) for part, x in self._split(e)])

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The sum of the parts' log densities."""
        found = [part.transport_and_log_prob(x) for part, x in self._split(e)]
        return self._joined([z for z, _ in found]), self._sum([value for _, value in found])

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """Scores are those of the parts."""
        found = [part.transport_and_score(x) for part, x in self._split(e)]
        points, values, scores = (list(column) for column in zip(*found, strict=True))
        return self._joined(points), self._sum(values), self._joined(scores)

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        parts = zip(self.parts, self._indices, strict=True)
        return self._sum([part.log_prob(z[at]) for part, at in parts])

    @property
    def _indices(self) -> list[np.ndarray]:
        return [np.concatenate([np.arange(*s) for s in stretches]) for stretches in self.places]

    def _split(self, e: Float[Array, " base"]) -> list[tuple[AbstractFamily, Array]]:
        ends = np.cumsum([part.base_dim for part in self.parts])
        return list(zip(self.parts, jnp.split(e, ends[:-1]), strict=True))

    def _joined(self, parts: list[Array]) -> Float[Array, " dim"]:
        order = np.argsort(np.concatenate(self._indices))
        return jnp.concatenate(parts)[order]

    def _sum(self, values: list[Float[Array, ""]]) -> Float[Array, ""]:
        return sum(values[1:], start=values[0])


class BySiteWithEntropy(BySite, HasEntropy):
    """The same of families whose entropies are known."""

    def entropy(self) -> Float[Array, ""]:
        """The sum of the parts'."""
        return self._sum([part.entropy() for part in self.parts if isinstance(part, HasEntropy)])


def product(parts: tuple[AbstractFamily, ...], places: tuple[Stretches, ...]) -> AbstractFamily:
    """The product of families at these places; one family at all of them in order is itself."""
    if len(parts) == 1:
        return parts[0]
    known = all(isinstance(part, HasEntropy) for part in parts)
    kind = BySiteWithEntropy if known else BySite
    return kind(parts=parts, places=places, base=parts[0].base)
