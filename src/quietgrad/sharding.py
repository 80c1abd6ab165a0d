"""Rows spread over the devices of a mesh: each works on its share, and XLA adds up what they find.

Programs stay as they are. Data that are placed with a sharding are computed with where they are, and
everything else is the same on all devices (GSPMD). Rows that do not divide evenly are filled up with
copies that count for nothing.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

from ._host import on_device
from .targets import Target

HOW = 'jax.make_mesh((n,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))'


class _Counted(eqx.Module):
    """A likelihood of rows of which some are only there to fill up."""

    log_likelihood: Any
    factor: float = eqx.field(static=True)

    def __call__(self, point: PyTree, rows: tuple[PyTree, Array]) -> Float[Array, " rows"]:
        """Zero for the fillers; the others weigh more, as the target averages over all of them."""
        data, counts = rows
        return self.factor * jnp.where(counts, self.log_likelihood(point, data), 0)


def check_mesh(mesh: Any, target: Target) -> None:
    """Raise unless the rows of the target can be spread over the mesh."""
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, such as {HOW}; got {type(mesh).__name__}")
    if any(kind is not AxisType.Auto for kind in mesh.axis_types):
        raise ValueError(f"the axes of the mesh must be Auto, so that jax places the work: {HOW}")
    if target.rows == 0:
        raise ValueError("a mesh shares out the rows of the data, and this target has none")
    if target.on_disk:
        raise ValueError(
            "rows that stay on disk are read by one device; give data in memory, or leave the mesh out"
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


def spread(target: Target, mesh: Mesh) -> Target:
    """The same target with its rows shared out over all devices of the mesh."""
    rows, devices = target.rows, mesh.devices.size
    filled = -(-rows // devices) * devices
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))

    def placed(x: Any) -> Array:
        whole = np.asarray(x)
        if filled > rows:
            whole = np.concatenate([whole, np.repeat(whole[:1], filled - rows, axis=0)])
        return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

    data = jax.tree.map(placed, target.data)
    if filled == rows:
        return eqx.tree_at(lambda t: t.data, target, data)
    counted = _Counted(target.log_likelihood, filled / rows)
    counts = jax.make_array_from_callback(
        (filled,), sharding, lambda part: (np.arange(filled) < rows)[part]
    )
    return eqx.tree_at(lambda t: (t.data, t.log_likelihood), target, ((data, counts), counted))


def gathered(tree: PyTree) -> PyTree:
    """Arrays that are the same on all devices, as arrays on one."""
    return jax.tree.map(lambda x: on_device(np.asarray(x)) if isinstance(x, jax.Array) else x, tree)
