"""Stein weights with the points that suit the dimension of eps: shared prior draws, or chains."""

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from ...families.semi_implicit import Generator
from .score import AbstractScore
from .stein import SteinChain
from .stein_shared import SteinShared

# The largest dimension of eps for which prior draws that all points share are taken. In the study
# (docs/implicit.md) they have smaller errors than a chain's path in two and three dimensions, and far
# larger ones in ten; nothing between has been measured.
FEW = 3


class SteinByDimension(AbstractScore):
    """`shared` where eps has at most `few` dimensions, and `chain` where it has more.

    Prior draws cover every mode of q(eps | w) and know nothing of the eps that made w, but the
    effective number of them falls exponentially with the dimension; a chain stays in the mode that it
    starts in, and its points suit any dimension.
    """

    shared: SteinShared = SteinShared()
    chain: SteinChain = eqx.field(default_factory=SteinChain)
    few: int = eqx.field(static=True, default=FEW)

    def part(self, mixing: int) -> AbstractScore:
        """The estimate for this dimension of eps."""
        return self.shared if mixing <= self.few else self.chain

    @property
    def biased(self) -> bool:
        """Both parts are."""
        return self.shared.biased or self.chain.biased

    def gradients(self, mixing: int) -> int:
        """Those of the part."""
        return self.part(mixing).gradients(mixing)

    def init(self, generator: Generator) -> PyTree:
        """The state of the part."""
        return self.part(generator.linear.shape[1]).init(generator)

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: PyTree,
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], PyTree]:
        """The scores of the part."""
        return self.part(eps.shape[1])(generator, w, eps, state, key=key)
