"""A posterior of the zoo: its log density, what is known of its moments, what a fit may say of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import quietgrad as qg


@dataclass(frozen=True)
class Moments:
    """Means and standard deviations of the coordinates, by a formula that `how` names."""

    mean: Float[np.ndarray, " dim"]
    std: Float[np.ndarray, " dim"]
    how: str


@dataclass(frozen=True)
class View:
    """Coordinates u in which a sampler has an easy time: z = to_z(u), with log |det dz/du|."""

    to_z: Callable[[Float[Array, " dim"]], Float[Array, " dim"]]
    log_det: Callable[[Float[Array, " dim"]], Any]


@dataclass(frozen=True)
class Model:
    """A posterior. Without `exact`, its reference moments come from long chains.

    `must_warn` says why a Gaussian, or anything, cannot have this posterior's means and scales: a fit
    that calls itself trustworthy has to have both right, not the means alone. `proper` is false where
    there are no moments to compare with. `mirror` maps a draw to its equally probable counterpart in
    the other mode, where chains stay in one of them. `source` is the public report this model was
    written after. `start` is where chains begin, in the view's coordinates.
    """

    about: str
    target: qg.Target
    exact: Moments | None = None
    view: View | None = None
    mirror: Callable[[Float[Array, " dim"]], Float[Array, " dim"]] | None = None
    must_warn: str | None = None
    proper: bool = True
    source: str | None = None
    start: Float[np.ndarray, " dim"] | None = None
    accept: float = 0.9

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        assert self.target.dim is not None
        return self.target.dim

    def log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """The log density up to a constant."""
        return self.target.log_density(z)

    def view_density(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """The log density in the coordinates of the view."""
        if self.view is None:
            return self.log_density(u)
        return self.log_density(self.view.to_z(u)) + self.view.log_det(u)

    def from_view(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The point of these coordinates."""
        return u if self.view is None else self.view.to_z(u)

    def points(self) -> Float[np.ndarray, "three dim"]:
        """Three fixed points near where chains begin."""
        points = 0.1 * np.random.default_rng(0).normal(size=(3, self.dim))
        if self.start is None:
            return points
        return points + np.asarray(jax.jit(self.from_view)(jnp.asarray(self.start)))

    def fingerprint(self) -> list[float]:
        """Differences of the log density between fixed points; they change when the model does."""
        values = np.asarray(jax.jit(jax.vmap(self.log_density))(jnp.asarray(self.points())))
        return (values[1:] - values[0]).tolist()


def density(fn: Callable[[Float[Array, " dim"]], Any], dim: int) -> qg.Target:
    """A target from a log density of one point."""
    return qg.Target.from_logdensity(fn, dim)


def affine(shift: Float[np.ndarray, " dim"], matrix: Float[np.ndarray, "dim dim"]) -> View:
    """The view z = shift + matrix u."""
    log_det = float(np.linalg.slogdet(matrix)[1])
    return View(lambda u: jnp.asarray(shift) + jnp.asarray(matrix) @ u, lambda u: log_det)
