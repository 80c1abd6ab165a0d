"""Independent draws, the paper's choice."""

from typing import Any

from jaxtyping import Array, Float, Key, PyTree

from ...families.bases import AbstractBase
from .sampler import AbstractSampler


class Iid(AbstractSampler):
    """L independent draws."""

    @property
    def independent(self) -> bool:
        """Always."""
        return True

    def variance_bound(self, draws: int) -> float:
        """It is what others are compared with."""
        del draws
        return 1.0

    def draw(
        self,
        state: PyTree,
        base: AbstractBase,
        shape: tuple[int, int],
        dtype: Any,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws base"]:
        """`shape[0]` independent draws."""
        del state
        return base.sample(shape, dtype, key=key)
