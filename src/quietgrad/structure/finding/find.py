"""The structure of a target: what its model says, or else the zeros of its Hessian; always checked."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...targets import Target
from ..structure import Structure
from . import from_graph, from_names
from .check import POINTS, fits
from .coded import DENSE, decoded_graph, dense_graph, sampled_columns
from .packing import Candidate
from .products import HessianProducts, Products

# Candidates of each source that are checked, and names of globals in a sentence.
MOST_CHECKED, NAMED = 4, 4


class Found(NamedTuple):
    """A structure that the target was found to have, how it was found, and what that cost."""

    structure: Structure
    source: str
    products: int
    sentence: str


def structure_of(
    target: Target,
    dim: int | None = None,
    *,
    seed: int = 0,
    center: Any = None,
    products: Products | None = None,
) -> Found | None:
    """The globals and blocks of a target, or None if it has none that would pay.

    Plates and dims are asked first, then arrays of one length, then the zeros of the Hessian at a random
    point around `center` (zero by default). Whatever is found is checked at other random points. Takes
    some ten products with the Hessian where the model says it, some hundred where it has to be found,
    and about twenty to find nothing; each costs about four gradients. One program is compiled, unless
    there are `products` of one that is.
    """
    dim = target.dim if dim is None else dim
    if dim is None:
        raise ValueError("the target does not say how long a point is; give its dim")
    if target.on_disk or target.hyperparameter_count:
        return None
    hessian = HessianProducts(target, dim, np.random.default_rng([seed, dim]), center, products)
    scalars = from_names.scalars(target, dim)
    for candidate in itertools.chain(_from_names(target, dim), _from_zeros(hessian)):
        candidate = candidate.without(scalars)
        if fits(hessian, candidate):
            structure = candidate.structure()
            words = _sentence(target, dim, candidate, structure, hessian)
            structure = candidate.structure(words)
            return Found(structure, candidate.source, hessian.count, words)
    return None


def blocks_of_plates(target: Target) -> Structure:
    """Blocks for Gaussians that are independent of each other: the places of every plate, or dim.

    A place's coordinates are those of all variables that have the axis, so that the factors of a row of
    a matrix are a block, and those of a column another. The target need not be independent like that.
    """
    assert target.dim is not None
    blocks = list(from_names.places(target, target.dim))
    sizes = sorted({len(block) for block in blocks})
    covered = sum(map(len, blocks)) == target.dim
    if len(sizes) != 1 or not covered or not np.array_equal(np.unique(blocks), np.arange(target.dim)):
        raise ValueError(
            "blocks of plates need every coordinate in one plate or dim, and as many at every place; "
            f"got places of {', '.join(map(str, sizes)) or 'no'} coordinates"
        )
    return Structure(np.zeros(0, int), np.stack(blocks))


def has(target: Target, structure: Structure, products: Products | None = None) -> bool:
    """Whether the target has this structure: as what is found is checked, by random products."""
    if target.on_disk or target.hyperparameter_count:
        return False
    rng = np.random.default_rng([structure.dim, structure.n])
    hessian = HessianProducts(target, structure.dim, rng, None, products)
    own = np.asarray(structure.globals), np.asarray(structure.blocks)
    return fits(hessian, Candidate(*own, structure.kind, "what was given"))


def _from_names(target: Target, dim: int) -> Iterator[Candidate]:
    return itertools.islice(from_names.candidates(target, dim), MOST_CHECKED)


def _from_zeros(hessian: HessianProducts) -> Iterator[Candidate]:
    """From the graph at one point; what costs more is done only if nothing before was right."""
    if not hessian.move():
        return
    graph = None
    if hessian.dim <= DENSE:
        graph = dense_graph(hessian)
    elif (sampled := sampled_columns(hessian)) is not None:
        yield from from_graph.natural(*sampled, hessian.dim)
        graph = decoded_graph(hessian, *sampled)
    if graph is not None:
        yield from from_graph.candidates(*graph)[:MOST_CHECKED]


def _sentence(
    target: Target, dim: int, candidate: Candidate, structure: Structure, hessian: HessianProducts
) -> str:
    held = from_names.entries(target, dim)
    inside = set(candidate.globals.tolist())
    names = [name for name, (numbers, _) in held.items() if inside.intersection(numbers.ravel())]
    if not held:
        names = [f"coordinate {number}" for number in sorted(inside)]
    shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    given = f" ({shown})" if names else ""
    return (
        f"{structure}{given}, from {candidate.source}; checked at {POINTS} points, "
        f"{hessian.count} Hessian products in all"
    )
