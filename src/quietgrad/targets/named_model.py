"""What a probabilistic program knows beyond its density: names, the user's scale, and predictions."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key, PyTree


class AbstractNamedModel(eqx.Module):
    """The program that a target was made from. Methods take one point in the target's own form."""

    def all_at(self, point: PyTree) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
        """`constrain`, `log_likelihoods` and `observed`: what a target reads when it is made."""
        return self.constrain(point), self.log_likelihoods(point), self.observed()

    @abc.abstractmethod
    def constrain(self, point: PyTree) -> dict[str, Array]:
        """The program's variables at a point, by name, on the scale of the user."""

    def variables(self) -> tuple[str, ...]:
        """Names of the variables that determine a point, others follow; none if it has no inverse."""
        return ()

    def unconstrain(self, values: dict[str, Array]) -> PyTree:
        """The point at which `constrain` gives these values of all `variables`."""
        del values
        raise ValueError(
            f"{type(self).__name__} does not map values of its variables to points; give draws on the "
            "target's unconstrained scale"
        )

    @abc.abstractmethod
    def log_likelihoods(self, point: PyTree) -> dict[str, Array]:
        """log p(observed | point) by name, in the shapes of the observed variables, for all data."""

    @abc.abstractmethod
    def observed(self) -> dict[str, Any]:
        """The observed values by name."""

    @abc.abstractmethod
    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """Names of the axes of a variable, where it has any; None for an axis without one."""

    def point_dims(self) -> Mapping[str, Sequence[str | None]]:
        """Names of the axes of each entry of a point, in the target's own form, where they are known."""
        return {}

    @abc.abstractmethod
    def coords(self) -> Mapping[str, Any]:
        """Labels along the named axes."""

    @abc.abstractmethod
    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """Observed variables drawn again for each of `draws`, as `constrain` gives them.

        `args` and `kwargs` are new inputs of the program; without any, those of the fit are used.
        """


class AbstractParameters(eqx.Module):
    """Where they start, what they are called, and the target with them held fixed."""

    @property
    @abc.abstractmethod
    def start(self) -> PyTree:
        """The hyperparameters that `fit` begins with, on an unconstrained scale."""

    @abc.abstractmethod
    def values(self, h: PyTree) -> PyTree:
        """Hyperparameters on the scale of the model."""

    @abc.abstractmethod
    def at(self, target: Any, h: PyTree) -> Any:
        """The target at these hyperparameters, with its model."""
