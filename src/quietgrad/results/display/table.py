"""Draws by name, element by element, and their summary."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

# The interval in a summary, as shares of the draws.
LOW, HIGH = 0.055, 0.945


class Row(NamedTuple):
    """One number of a model: its mean, standard deviation and central 89 % interval."""

    label: str
    mean: float
    std: float
    low: float
    high: float


def named(tree: PyTree, alone: str = "z") -> dict[str, Any]:
    """The leaves of a pytree by their path; one that is all there is has the name `alone`."""

    def name(path: Any) -> str:
        return jax.tree_util.keystr(path, simple=True, separator="_") or alone

    leaves = {name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    # Numbers, from tuples and lists, are no names of variables.
    return {f"{alone}_{key}" if key[0].isdigit() else key: leaf for key, leaf in leaves.items()}


def elements(draws: Mapping[str, Any]) -> Iterator[tuple[str, Float[np.ndarray, " draws"]]]:
    """Every number of every variable, as ArviZ labels it: slope[3, 1]."""
    for name, values in draws.items():
        array = np.asarray(values, float)
        for index in np.ndindex(array.shape[1:]):
            inside = f"[{', '.join(map(str, index))}]" if index else ""
            yield f"{name}{inside}", array[(slice(None), *index)]


def count(draws: Mapping[str, Any]) -> int:
    """How many numbers `elements` has."""
    return sum(int(np.prod(np.shape(values)[1:])) for values in draws.values())


def summary_row(label: str, draws: Float[np.ndarray, " draws"]) -> Row:
    """The summary of one number; NaN where draws are not finite."""
    low, high = np.quantile(draws, [LOW, HIGH])
    std = np.std(draws, ddof=1) if draws.size > 1 else np.nan
    return Row(label, float(np.mean(draws)), float(std), float(low), float(high))
