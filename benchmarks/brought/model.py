"""A model as a user wrote it: its target, its NUTS, and the numbers that its reader looks at.

Numbers are those of the latent sites on their own (constrained) scale, as `result.sample` gives them.
Sites in `by_log` are read by their logarithm: their tails are so heavy that a mean or an sd does
not exist or is found by no chain.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

if TYPE_CHECKING:
    # NUTS and others are timed without it.
    import quietgrad as qg

Draws = Mapping[str, Any]


@dataclass(frozen=True)
class Chains:
    """Draws of every site, chains first, and the divergent transitions after warm-up."""

    draws: dict[str, np.ndarray]
    divergent: int


@dataclass(frozen=True)
class Brought(abc.ABC):
    """A model, its arguments and how its truth is found.

    `easy` is the same posterior in a form that chains pass easily, with the same names for the same
    quantities. `copies` maps draws to all their equally probable counterparts, where modes are copies of
    one another and chains stay in one. `grid` has the interval of each unconstrained coordinate for a
    quadrature, for at most two of them. `exact` gives mean and sd of each
    site, read as `by_log` says, by a formula. `too_large` says why a model has no reference.
    """

    model: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    easy: Callable[..., Any] | None = None
    by_log: tuple[str, ...] = ()
    copies: Callable[[dict[str, np.ndarray]], list[dict[str, np.ndarray]]] | None = None
    grid: tuple[tuple[float, float], ...] | None = None
    exact: Callable[[], Mapping[str, tuple[Any, Any]]] | None = None
    accept: float = 0.9
    too_large: str | None = None
    batch_size: int | None = None

    @property
    def about(self) -> str:
        """The first line of the model's docstring."""
        return (self.model.__doc__ or "").strip().splitlines()[0]

    @abc.abstractmethod
    def target(self) -> "qg.Target":
        """As a user makes it."""

    @abc.abstractmethod
    def log_density(self) -> tuple[Callable[[Float[Array, " dim"]], Float[Array, ""]], int]:
        """The density on the tool's own unconstrained scale and its dimension, without this library."""

    @abc.abstractmethod
    def constrained(self, z: Float[Array, "draws dim"]) -> dict[str, np.ndarray]:
        """Sites at such points."""

    @abc.abstractmethod
    def sample(self, seed: int, *, warmup: int, draws: int) -> Chains:
        """One chain of NUTS by the tool of the user's language, with its defaults."""

    @abc.abstractmethod
    def blocks(self, seed: int, *, chains: int, warmup: int, draws: int) -> "Blocks":
        """Long chains of the easy form, block after block."""

    def sites(self) -> list[str]:
        """The latent sites, in the order of their names."""
        target = self.target()
        assert target.model is not None
        return sorted(target.model.variables())

    def values(self, draws: Draws, *, lead: int = 1) -> Float[np.ndarray, "*lead values"]:
        """All numbers of the latent sites beside each other; `lead` axes are those of the draws."""
        parts = []
        for name in self.sites():
            value = np.asarray(draws[name], np.float64)
            value = value.reshape(*value.shape[:lead], -1)
            parts.append(np.log(value) if name in self.by_log else value)
        return np.concatenate(parts, axis=-1)

    def names(self, draws: Draws, *, lead: int = 1) -> list[str]:
        """What these numbers are called."""
        found = []
        for name in self.sites():
            shape = np.shape(draws[name])[lead:]
            word = f"log {name}" if name in self.by_log else name
            found += [f"{word}{list(i) if i else ''}" for i in np.ndindex(*shape)]
        return found

    def fingerprint(self) -> list[float]:
        """Differences of the log density between fixed points; they change when the model does."""
        target = self.target()
        points = 0.1 * np.random.default_rng(0).normal(size=(3, target.dim))
        values = np.asarray(jax.jit(jax.vmap(target.log_density))(points), np.float64)
        return (values[1:] - values[0]).tolist()


Blocks = Callable[[], Chains]
