"""Which part of a NumPyro model is data: the plate, or the axis, whose rows a minibatch may drop.

Rows of a plate are taken in one of two ways. A model that indexes its data by the plate's rows gets
the numbers of the rows. For others the arguments themselves are cut, and what comes out is compared
with the uncut run once, because a model may look at all of its data (to standardise them, say).
"""

from typing import NamedTuple

from .structure import Site, Structure


class Candidate(NamedTuple):
    """Sites that fall into rows: along a plate, or, without a plate, along their one batch axis."""

    plate: str | None
    axes: tuple[tuple[str, int], ...]
    size: int


class Rows(NamedTuple):
    """How rows are handed to the model: `leaves` of the arguments are cut, or None for row numbers."""

    plate: str | None
    axes: tuple[tuple[str, int], ...]
    leaves: tuple[int, ...] | None


def subsampled(structure: Structure) -> list[str]:
    """Plates that take some of their rows in a run."""
    return [name for name, plate in structure.plates if plate.taken < plate.size]


def candidate(structure: Structure, preferred: list[str]) -> Candidate | None:
    """The one plate with observed sites only, or the one observed vector; None if it is not clear.

    `preferred` are the plates that the model subsamples: where there are any, no other will do.
    """
    if structure.enumerated:
        return None
    found = [c for name, plate in structure.plates if (c := _plate(structure, name, plate.size))]
    if preferred:
        found = [c for c in found if [c.plate] == preferred]
    if len(found) == 1:
        return found[0]
    if found or preferred or len(structure.observed) != 1:
        return None
    site = structure.observed[0]
    if site.plates or len(site.batch) != 1 or site.batch[0] < 2:
        return None
    return Candidate(None, ((site.name, -1),), site.batch[0])


def _plate(structure: Structure, name: str, size: int) -> Candidate | None:
    def axis(site: Site) -> int | None:
        return dict(site.plates).get(name)

    if size < 2 or any(axis(site) is not None for site in structure.latent):
        return None
    seen = (*structure.observed, *structure.factors)
    axes = tuple((site.name, dim) for site in seen if (dim := axis(site)) is not None)
    return Candidate(name, axes, size) if axes else None
