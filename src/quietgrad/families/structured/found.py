"""The structure of a target for a family that was asked for by name."""

from ...structure import Structure, structure_of
from ...structure.structure import Kind
from ...targets import Target

NONE = (
    "no split of the coordinates into globals and blocks of locals was found for this target, which a "
    "family of this kind needs; use 'low-rank' or 'full-rank', or a member made with structure=..."
)


def structure_for(target: Target, kind: Kind | None = None) -> Structure:
    """The structure that the target has, as this kind, or a `ValueError` that says why not."""
    found = structure_of(target)
    if found is None:
        raise ValueError(NONE)
    structure = found.structure
    if kind == "arrowhead" and structure.chained:
        raise ValueError(
            f"the blocks of this target are tied ({found.sentence}), which an arrowhead cannot hold; "
            "use the family 'chain'"
        )
    return structure if kind is None or structure.kind == kind else structure.with_kind(kind)
