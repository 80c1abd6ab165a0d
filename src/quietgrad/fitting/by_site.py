"""`family={"beta": "full-rank", "z": "mean-field", "w": "map"}`: a family for every named site.

A key may be a tuple of names, whose sites have one joint family, and "*" stands for all other sites.
"""

from collections.abc import Mapping
from typing import Any

import jax.random as jr
from jaxtyping import Array, Key

from .._util.compiling import program
from ..families import AbstractFamily
from ..families import named as family_named
from ..families.by_site import product
from ..targets import Target
from ..targets.sites import sites_of, with_points

# The name of a point mass at the best value, and the key of all sites that have none of their own.
MAP, OTHERS = "map", "*"


def by_site(
    target: Target, family: Mapping[Any, Any], *, key: Key[Array, ""]
) -> tuple[Target, AbstractFamily]:
    """The target, whose parameters are the sites that are points, and the product for the others."""
    groups = _groups(target, family)
    points = [name for names, kind in groups if kind == MAP for name in names]
    if len(points) == len(sites_of(target)):
        raise ValueError("every site is 'map', which leaves no distribution to fit; give one a family")
    if points and target.parameters is not None:
        raise ValueError(
            "the model has parameters of its own (numpyro.param), which are fitted as points already; "
            "make them, or the sites that are 'map', the same kind"
        )
    reduced = with_points(target, points) if points else target
    places, parts, stretches = sites_of(reduced), [], []
    kept = [(names, kind) for names, kind in groups if kind != MAP]
    for (names, kind), own in zip(kept, jr.split(key, len(kept)), strict=True):
        stretches.append(tuple(sorted(places[name] for name in names)))
        size = sum(last - first for first, last in stretches[-1])
        part = program(family_named(kind).init)(size, key=own) if isinstance(kind, str) else kind
        if not isinstance(part, AbstractFamily) or part.dim != size:
            raise ValueError(
                f"the family of {', '.join(map(repr, names))} must be a name or a family of dim {size}; "
                f"got {kind!r}"
            )
        parts.append(part)
    return reduced, product(tuple(parts), tuple(stretches))


def _groups(target: Target, family: Mapping[Any, Any]) -> list[tuple[tuple[str, ...], Any]]:
    """Names of sites that belong together, and their family; every site once."""
    sites = sites_of(target)
    groups = [((k,) if isinstance(k, str) else tuple(k), v) for k, v in family.items() if k != OTHERS]
    taken = [name for names, _ in groups for name in names]
    unknown = [name for name in taken if name not in sites]
    if unknown:
        raise ValueError(
            f"family has {', '.join(map(repr, unknown))}; the sites are {', '.join(map(repr, sites))}"
        )
    if len(taken) > len(set(taken)):
        raise ValueError("a site has two families; name every site once")
    rest = [name for name in sites if name not in taken]
    if rest and OTHERS not in family:
        raise ValueError(
            f"no family for {', '.join(map(repr, rest))}; add them, or {OTHERS!r}: 'mean-field' for all "
            "other sites"
        )
    return groups + [((name,), family[OTHERS]) for name in rest]
