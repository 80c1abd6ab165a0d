"""Parameters without a prior that a model brings along: hyperparameters that a fit finds by itself."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import PyTree


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
