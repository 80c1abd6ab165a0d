"""A probabilistic program as it was when its target was made."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from .._util.compiling import program
from .._util.tracing import Traced, traced
from .named_model import AbstractNamedModel


class _Source:
    """The program itself, no part of what is compiled: that comes from its trace."""

    def __init__(self, model: AbstractNamedModel):
        self.model = model

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source)


class ReadModel(AbstractNamedModel):
    """Variables, likelihoods and data of the program as it was; only predictions run it again."""

    read: Traced
    source: _Source = eqx.field(static=True)

    def constrain(self, point: PyTree) -> dict[str, Array]:
        """As the program did when it was read."""
        return self.read(point)[0]

    def variables(self) -> tuple[str, ...]:
        """As the program says."""
        return self.source.model.variables()

    def unconstrain(self, values: dict[str, Array]) -> PyTree:
        """As the program says."""
        return self.source.model.unconstrain(values)

    def log_likelihoods(self, point: PyTree) -> dict[str, Array]:
        """Given the data of then."""
        return self.read(point)[1]

    def observed(self) -> dict[str, Any]:
        """The data of then."""
        return _observed(self.read)

    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """As the program says."""
        return self.source.model.dims()

    def point_dims(self) -> Mapping[str, Sequence[str | None]]:
        """As the program says."""
        return self.source.model.point_dims()

    def coords(self) -> Mapping[str, Any]:
        """As the program says."""
        return self.source.model.coords()

    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """By a run of the program, which reads what it does not get as arguments as it is by then."""
        return self.source.model.predictive(draws, args, kwargs, key=key)


def read_model(model: AbstractNamedModel, point: PyTree) -> ReadModel:
    """The program as it is now; a point may be shapes."""
    if isinstance(model, ReadModel):
        return model
    return ReadModel(traced(model.all_at, point), _Source(model))


@program
def _observed(read: Traced) -> dict[str, Array]:
    (point,) = read.program.args
    return read(jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), point))[2]
