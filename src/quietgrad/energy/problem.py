"""An energy-based model p(x) = e^{-E(x)} / Z and the rows it is fitted to.

Points are flat inside, whatever the shape of a row; an energy sees rows as they were given.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._util.checks import described


class AbstractEnergy(eqx.Module):
    """E(x) as a function of parameters and a flat point."""

    @abc.abstractmethod
    def __call__(self, params: PyTree, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The energy of one point."""

    def slope(
        self, params: PyTree, x: Float[Array, "points dim"]
    ) -> tuple[Float[Array, " points"], Float[Array, "points dim"]]:
        """Energies and their gradients with respect to the points; minus these are the scores."""
        return jax.vmap(jax.value_and_grad(self, argnums=1), in_axes=(None, 0))(params, x)


class EnergyModel(AbstractEnergy):
    """E as a function of its parameters and a flat point.

    Given as a module that is called with a point, or as `(params, function)` with
    `function(params, point)`. Floating-point arrays are what is fitted.
    """

    rest: PyTree
    function: Callable[..., Any] | None = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, params: PyTree, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The energy of one point."""
        whole, point = self.whole(params), x.reshape(self.shape)
        return whole(point) if self.function is None else self.function(whole, point)

    def whole(self, params: PyTree) -> PyTree:
        """The module, or the parameters, in the form in which they were given."""
        return eqx.combine(params, self.rest)


class EnergyProblem(eqx.Module):
    """What is fitted: the model, all rows (flat), their mean and the deviation of each coordinate.

    Chains move in units of the deviations, so that no coordinate holds the others back.
    """

    model: EnergyModel
    data: Float[Array, "rows dim"]
    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    @property
    def dim(self) -> int:
        """Coordinates of a point."""
        return self.data.shape[1]

    def noise(self, e: Float[Array, "points dim"]) -> Float[Array, "points dim"]:
        """Standard normal draws as draws with the mean and the deviations of the rows."""
        return self.mean[None, :] + self.scale[None, :] * e


def problem_of(energy: Any, data: Any) -> tuple[EnergyProblem, PyTree]:
    """The problem and the parameters to start from, checked."""
    rows = np.asarray(data)
    if rows.ndim < 2 or len(rows) < 2:
        raise ValueError(
            f"data must have one row for each observation, (rows, dim), and two rows or more; "
            f"got the shape {rows.shape}"
        )
    if rows.dtype.kind not in "fiub" or not np.isfinite(rows).all():
        raise ValueError("data must be finite numbers")
    dtype = rows.dtype if rows.dtype.kind == "f" else jnp.zeros(()).dtype
    flat = jnp.asarray(rows.reshape(len(rows), -1), jax.dtypes.canonicalize_dtype(dtype))
    given, function = energy, None
    if isinstance(energy, tuple) and len(energy) == 2 and callable(energy[1]):
        given, function = energy
    elif not isinstance(energy, eqx.Module) or not callable(energy):
        raise TypeError(
            "energy must be an equinox module that is called with a point, or (params, function) with "
            f"function(params, point); got {described(energy)}"
        )
    params, rest = eqx.partition(given, eqx.is_inexact_array)
    if not jax.tree.leaves(params):
        raise ValueError("the energy has no floating-point arrays, so there is nothing to fit")
    model = EnergyModel(rest, function, rows.shape[1:])
    _check(model, params, flat)
    std = np.std(np.asarray(flat, float), axis=0)
    # A coordinate that never changes has no scale of its own.
    std = np.where(std > 0, std, 1.0)
    mean = jnp.asarray(np.mean(np.asarray(flat, float), axis=0), flat.dtype)
    return EnergyProblem(model, flat, mean, jnp.asarray(std, flat.dtype)), params


def _check(model: EnergyModel, params: PyTree, data: Float[Array, "rows dim"]) -> None:
    shape = eqx.filter_eval_shape(model, params, jax.ShapeDtypeStruct(data.shape[1:], data.dtype))
    if getattr(shape, "shape", None) != () or not jnp.issubdtype(shape.dtype, jnp.floating):
        raise ValueError(f"an energy must be one real number for a point; got {shape}")
