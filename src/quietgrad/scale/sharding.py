"""Work spread over the devices of a mesh: each does its share, and XLA adds up what they find.

The names of the mesh's axes say what is shared out: draws, starts, or else rows. Rows are placed once,
and computed with where they are; where they do not divide evenly they are filled up with copies that
count for nothing. Points, of draws or of starts, are made within programs, by what evaluates many of
them together: it asks for their places (`shared_out`) with the target, which has the mesh. Everything
else is the same on all devices, and random numbers do not depend on where they are made.
"""

import math
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree, Shaped

from .._util.checks import instance
from .._util.device import on_device
from ..targets import Target

# Axes of a mesh that share out points; those of other names share out rows.
RESTARTS, DRAWS = POINTS = "restarts", "draws"
T = TypeVar("T", bound=PyTree)
HOW = 'jax.make_mesh((n,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))'


class _Counted(eqx.Module):
    """A likelihood of rows of which some are only there to fill up."""

    log_likelihood: Any
    factor: float = eqx.field(static=True)

    def __call__(self, point: PyTree, rows: tuple[PyTree, Array]) -> Float[Array, " rows"]:
        """Zero for the fillers; the others weigh more, as the target averages over all of them."""
        data, counts = rows
        return self.factor * jnp.where(counts, self.log_likelihood(point, data), 0)


def check_mesh(mesh: Any, target: Target, *, restarts: int) -> None:
    """Raise unless there is something for every axis of the mesh to share out."""
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, such as {HOW}; got {type(mesh).__name__}")
    if any(kind is not AxisType.Auto for kind in mesh.axis_types):
        raise ValueError(f"the axes of the mesh must be Auto, so that jax places the work: {HOW}")
    instance(target, Target, "target")
    if RESTARTS in mesh.axis_names and restarts == 1:
        raise ValueError(
            "the axis 'restarts' shares out starts, and this fit has one; give restarts=..., or name "
            "the axis 'draws'"
        )
    named = ", ".join(map(repr, _row_axes(mesh)))
    if named and target.rows == 0:
        raise ValueError(
            f"the axis {named} of the mesh shares out the rows of the data, and this target has none; "
            "name it 'draws' to share out draws"
        )
    if named and target.on_disk:
        raise ValueError(
            f"the axis {named} of the mesh shares out rows, and rows that stay on disk are read by one "
            "device; give data in memory, or name the axis 'draws'"
        )


def check_processes(*, plain_steps: bool, seconds: float | None, restarts: int) -> None:
    """Raise unless several processes would launch the same programs in the same order.

    Each runs the whole fit and comes to the same decisions from the same numbers, as long as no clock is
    asked. `plain_steps`: the method takes stochastic steps and does not look at the clock.
    """
    if jax.process_count() == 1:
        return
    if seconds is not None or not plain_steps:
        raise ValueError(
            "processes that decide by their own clocks would wait for each other: over several of them, "
            "give method=qg.Sgd(by_clock=False) and no `seconds`; other methods are for one process"
        )
    if restarts > 1:
        raise ValueError("restarts are for one process; leave them, or the mesh, out")


def spread(target: Target) -> Target:
    """The same target with its rows shared out over its mesh, and what else it holds on all devices."""
    assert target.mesh is not None
    axes, rows = _row_axes(target.mesh), target.rows
    filled = -(-rows // _size(target.mesh, axes)) * _size(target.mesh, axes)
    by_rows = NamedSharding(target.mesh, PartitionSpec(axes or None))

    def placed(x: Any) -> Array:
        whole = np.asarray(x)
        if filled > rows:
            whole = np.concatenate([whole, np.repeat(whole[:1], filled - rows, axis=0)])
        return jax.make_array_from_callback(whole.shape, by_rows, lambda part: whole[part])

    data, likelihood = jax.tree.map(placed, target.data), target.log_likelihood
    if filled > rows:
        counts = jax.make_array_from_callback(
            (filled,), by_rows, lambda part: (np.arange(filled) < rows)[part]
        )
        data, likelihood = (data, counts), _Counted(likelihood, filled / rows)
    return eqx.tree_at(
        lambda t: (t.data, t.log_prior, t.log_likelihood),
        target,
        (data, *on_all_devices(target, (target.log_prior, likelihood))),
        is_leaf=lambda x: x is None,
    )


def on_all_devices(target: Target, tree: T) -> T:
    """Arrays that are used beside the target, on every device of its mesh.

    Left on one, they would be sent at each call; and what a program returns is on all of them, so that
    the next call would need another program.
    """
    if target.mesh is None:
        return tree
    everywhere = NamedSharding(target.mesh, PartitionSpec())
    return jax.tree.map(lambda x: jax.device_put(x, everywhere) if eqx.is_array(x) else x, tree)


def shares(target: Target) -> int:
    """Over how many devices the points are shared out at which the target is evaluated."""
    return 1 if target.mesh is None else _size(target.mesh, _point_axes(target.mesh))


def shares_starts(target: Target) -> bool:
    """Whether an axis of the mesh is there for starts."""
    return target.mesh is not None and RESTARTS in target.mesh.axis_names


def shared_out(target: Target, points: Shaped[Array, "points ..."]) -> Shaped[Array, "points ..."]:
    """Within a program: points, or what they are made from, each on a device that works on it."""
    return _constrained(target, points, shared=True)


def put_together(target: Target, found: T) -> T:
    """Within a program: what was found at points that are shared out, as a whole on every device.

    A process can read what its own devices have, no more.
    """
    return _constrained(target, found, shared=False)


def gathered(tree: PyTree) -> PyTree:
    """Arrays that are the same on all devices, as arrays on one."""
    return jax.tree.map(lambda x: on_device(np.asarray(x)) if isinstance(x, jax.Array) else x, tree)


def _constrained(target: Target, tree: T, *, shared: bool) -> T:
    axes = () if target.mesh is None else _point_axes(target.mesh)
    if target.mesh is None or not axes:
        return tree
    sharding = NamedSharding(target.mesh, PartitionSpec(*([axes] if shared else [])))
    return jax.lax.with_sharding_constraint(tree, sharding)


def _point_axes(mesh: Mesh) -> tuple[str, ...]:
    return tuple(axis for axis in POINTS if axis in mesh.axis_names)


def _row_axes(mesh: Mesh) -> tuple[str, ...]:
    return tuple(axis for axis in mesh.axis_names if axis not in POINTS)


def _size(mesh: Mesh, axes: tuple[str, ...]) -> int:
    return math.prod(mesh.shape[axis] for axis in axes)
