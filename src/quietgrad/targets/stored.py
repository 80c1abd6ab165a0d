"""What is left of a target in a file: names, labels, and the map to the user's scale as a program.

The map z -> variables is exported by `jax.export`: a StableHLO program, which later versions of jax run
on any device. The density is not stored, and neither are data, except for those that the map itself uses
(a deterministic variable x @ beta has x in it).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from .._numerics.exported import Program, exported, function_of
from .named_model import AbstractNamedModel
from .target import Target

NEEDS_MODEL = (
    "this result was loaded from a file, which has no model; loaded.with_target(target) is the same "
    "result with the model and data that were fitted"
)
NO_MAP = (
    "the file has no map from q's draws to the model's variables, or none that can be used here; "
    "loaded.q.sample(key, draws) gives draws on the unconstrained scale, and "
    "loaded.with_target(target).sample(key) those of the model"
)


@dataclasses.dataclass(frozen=True, eq=False)
class About:
    """What a file says of the model.

    `form` is the structure of a point on the user's scale, with numbers in place of arrays; None is a
    vector. `program` makes these arrays of draws, if it could be exported, for at most `at_once` draws
    if that is not zero. `variables`, `dims` and `coords` are those of the model.
    """

    form: PyTree = None
    program: bytes | None = None
    at_once: int = 0
    variables: tuple[str, ...] = ()
    dims: Mapping[str, Sequence[str | None]] = dataclasses.field(default_factory=dict)
    coords: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class StoredModel(AbstractNamedModel):
    """Names, labels and the map to the user's scale; everything else asks for the model."""

    about: About = eqx.field(static=True)

    def constrain(self, point: Float[Array, " dim"]) -> PyTree:
        """By the stored program."""
        if self.about.form is None:
            return point
        if self.about.program is None:
            raise ValueError(NO_MAP)
        try:
            function = function_of(Program(self.about.program, self.about.at_once))
        except ValueError as error:
            raise ValueError(f"{error}. {NO_MAP}") from error
        leaves = function((), point)
        return jax.tree.map(lambda place: leaves[place], self.about.form)

    def variables(self) -> tuple[str, ...]:
        """As the model said."""
        return self.about.variables

    def log_likelihoods(self, point: PyTree) -> dict[str, Array]:
        """Not without the model."""
        raise ValueError(NEEDS_MODEL)

    def observed(self) -> dict[str, Any]:
        """Data are not stored."""
        return {}

    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """As the model said."""
        return self.about.dims

    def coords(self) -> Mapping[str, Any]:
        """As the model said."""
        return self.about.coords

    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """Not without the model."""
        raise ValueError(NEEDS_MODEL)


def without_density(target: Target) -> bool:
    """Whether the target came from a file, and has names and scales only."""
    return isinstance(target.model, StoredModel)


def stored_target(about: About, dim: int) -> Target:
    """A target with the names and the scale of a model, whose density asks for the model."""
    made = Target(_no_density)
    for name, value in {"dim": dim, "model": StoredModel(about)}.items():
        object.__setattr__(made, name, value)
    return made


def _no_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
    raise ValueError(NEEDS_MODEL)


def about(target: Target, dtype: Any) -> About:
    """What a file can say of a target, for draws of this type."""
    assert target.dim is not None
    model = target.model
    if isinstance(model, StoredModel):
        return model.about
    if model is None and target.unravel is None:
        return About()
    forms: list[PyTree] = []

    def leaves(arrays: tuple[Array, ...], z: Float[Array, " dim"]) -> tuple[Array, ...]:
        del arrays
        found, form = jax.tree.flatten(target.constrain(z))
        forms.append(jax.tree.unflatten(form, range(len(found))))
        return tuple(found)

    program = exported(leaves, (), target.dim, dtype)
    # As it was when `leaves` was traced: to trace a model once more can take seconds.
    form = forms[0]
    made = About(form, program.content, program.at_once)
    if model is None:
        return made
    dims = {name: tuple(axes) for name, axes in model.dims().items()}
    coords = {name: _labels(values) for name, values in model.coords().items()}
    return dataclasses.replace(made, variables=model.variables(), dims=dims, coords=coords)


def _labels(values: Any) -> np.ndarray:
    labels = np.asarray(values)
    return labels.astype(str) if labels.dtype.hasobject else labels
