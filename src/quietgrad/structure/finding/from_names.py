"""Candidates from what a model says of its axes: plates, dims, or arrays of one length."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from ...targets import Target
from .packing import Candidate, Indices, pack

# An entry of a point: its coordinates in the shape that the model gives it, and the names of its axes.
Entry = tuple[Int[np.ndarray, "..."], Sequence[str | None]]


def entries(target: Target, dim: int) -> dict[str, Entry]:
    """The entries of a point by name. A target of plain vectors has none."""
    if target.unravel is None:
        return {}
    # Places of the coordinates, found by unravelling their numbers.
    point = jax.tree_util.tree_flatten_with_path(target.unravel(np.arange(dim, dtype=float)))[0]  # pyright: ignore
    named = {} if target.model is None else target.model.point_dims()
    found = {}
    for path, numbers in point:
        name = path_name(path)
        numbers = np.asarray(np.rint(numbers), int)
        names = named.get(name, ())
        # Without names, the first axis goes by its length: arrays of one length may belong together.
        unnamed = [f"arrays of length {len(numbers)}"] if numbers.ndim and not named else []
        axes = (
            names if len(names) == numbers.ndim else [*unnamed, *[None] * numbers.ndim][: numbers.ndim]
        )
        found[name] = numbers, axes
    return found


def scalars(target: Target, dim: int) -> Indices:
    """Coordinates that are an entry of their own, in a point that has arrays too."""
    numbers = [numbers.ravel() for numbers, _ in entries(target, dim).values()]
    alone = [one for one in numbers if one.size == 1]
    return np.concatenate(alone) if len(alone) < len(numbers) and alone else np.zeros(0, int)


def path_name(path: Sequence[Any]) -> str:
    """The keys that lead to an entry, joined by dots."""
    return ".".join(
        str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path
    )


def candidates(target: Target, dim: int) -> Iterator[Candidate]:
    """Splits along one axis, and along all of them together; the cheapest first."""
    held = entries(target, dim)
    axes: dict[str, list[Indices]] = {}
    for name in {axis for _, names in held.values() for axis in names if axis is not None}:
        axes[name] = _along(name, held)
    everything = np.arange(dim)
    made = []
    for name, groups in axes.items():
        rest = np.setdiff1d(everything, np.concatenate(groups))
        made.append(pack(groups, rest, f"the axis {name!r}" if target.model else f"its {name}"))
    if len(axes) > 1:
        made.append(_together(axes, everything))
    found = [one for one in made if one is not None and one.worthwhile]
    yield from sorted(found, key=lambda one: one.entries)


def places(target: Target, dim: int) -> Iterator[Indices]:
    """For each place along each named axis, the coordinates of all entries whose first axis it is."""
    together: dict[str, list[Indices]] = {}
    for numbers, names in entries(target, dim).values():
        if len(names) and names[0] is not None:
            together.setdefault(names[0], []).append(numbers.reshape(len(numbers), -1))
    for parts in together.values():
        if len({len(part) for part in parts}) == 1:
            yield from np.concatenate(parts, axis=1)


def _along(name: str, held: Mapping[str, Entry]) -> list[Indices]:
    """For each place along the axis, the coordinates of all entries that have the axis once."""
    slices = []
    for numbers, names in held.values():
        if list(names).count(name) == 1:
            first = np.moveaxis(numbers, list(names).index(name), 0)
            slices.append(first.reshape(len(first), -1))
    lengths = {len(part) for part in slices}
    if len(lengths) != 1:
        return [np.concatenate([part.ravel() for part in slices])]
    return list(np.concatenate(slices, axis=1))


def _together(axes: Mapping[str, list[Indices]], everything: Indices) -> Candidate | None:
    """Every coordinate with the longest axis that it has."""
    groups, taken = [], np.zeros(len(everything), bool)
    for name in sorted(axes, key=lambda name: (-len(axes[name]), name)):
        groups += [own for group in axes[name] if len(own := group[~taken[group]])]
        taken[np.concatenate(axes[name])] = True
    named = ", ".join(map(repr, sorted(axes)))
    return pack(groups, everything[~taken], f"the axes {named}")
