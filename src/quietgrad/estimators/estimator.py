"""The contract of an estimator: configuration in the module, evolving state handed back."""

import abc
import inspect
import math
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import described, instance, lookup, unknown
from ..families import AbstractFamily
from ..targets import Target


class Cost(NamedTuple):
    """What a step asks of the target."""

    gradients: int
    values: int = 0
    hessian_products: int = 0


class Estimate(eqx.Module):
    """One step's result. `grad` is shaped like the family's arrays and points uphill."""

    grad: PyTree
    elbo: Float[Array, ""]
    beta: PyTree = None
    cost: Cost = eqx.field(static=True, default=Cost(0))


class AbstractEstimator(eqx.Module):
    """Turns a key into an estimate of the ELBO and of its gradient."""

    @property
    def title(self) -> str:
        """What people read of it."""
        return type(self).__name__

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether the mean of the estimate can differ from the gradient of the ELBO."""

    def variance_bound(self, q: AbstractFamily) -> float:
        """The most that the variance (its trace) can be, relative to the plain pathwise estimator's.

        The plain one has as many draws and the same entropy mode. What learns has learned for some steps
        at this q. Infinite where nothing is guaranteed, which is not to say that it is noisier.
        """
        del q
        return math.inf

    def draws_for(self, q: AbstractFamily) -> int:
        """How many draws a step takes with this family."""
        del q
        return getattr(self, "draws", 1)

    @abc.abstractmethod
    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Why this estimator cannot run on the pair; None if it can."""

    def init(self, target: Target, q: AbstractFamily) -> PyTree:
        """Check the pair and return the state before the first step."""
        instance(target, Target, "target")
        instance(q, AbstractFamily, "q")
        target.check(q.dim)
        reason = self.refuses(target, q)
        if reason is not None:
            raise ValueError(reason)
        return self._init(target, q)

    @abc.abstractmethod
    def _init(self, target: Target, q: AbstractFamily) -> PyTree:
        """The state before the first step, for a pair that is not refused."""

    @abc.abstractmethod
    def step(
        self, target: Target, q: AbstractFamily, state: PyTree, *, key: Key[Array, ""]
    ) -> tuple[Estimate, PyTree]:
        """An estimate, and the state for the next step."""


def resolve(given: AbstractEstimator | str) -> AbstractEstimator:
    """A registered name becomes its estimator with default settings; estimators pass through."""
    made = estimator(given) if isinstance(given, str) else given
    if isinstance(made, AbstractEstimator):
        return made
    from .registry import REGISTRY

    raise TypeError(
        f"estimator must be one of the names {', '.join(sorted(REGISTRY))} or an instance of "
        f"AbstractEstimator; got {described(given)}"
    )


def estimator(name: str, **settings: Any) -> AbstractEstimator:
    """Make a registered estimator, e.g. `estimator("nocv", draws=50)`."""
    from .registry import REGISTRY

    make = lookup(REGISTRY, name, "estimator")
    accepted = inspect.signature(make).parameters
    for setting in settings:
        if setting not in accepted:
            raise ValueError(unknown(f"setting of estimator {name!r}:", setting, accepted))
    return make(**settings)
