"""Members of structured families away from their start, and the arrays within a program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from quietgrad.families import Arrowhead, Chain
from quietgrad.structure import Structure


def away(q, seed=0):
    """A member with no parameter at zero."""
    noise = np.random.default_rng(seed)
    params, static = eqx.partition(q, eqx.is_inexact_array)
    # Without a program for each shape.
    moved = jax.tree.map(
        lambda x: jnp.asarray(np.asarray(x) + 0.3 * noise.normal(size=x.shape).astype(x.dtype)), params
    )
    return eqx.combine(moved, static)


STRUCTURES = [
    Structure([3, 0], [[1, 5], [2, 4], [6, 8], [7, 9]]),
    Structure([], [[1, 0], [2, 3], [5, 4]]),
    Structure([2, 1, 0], [[3], [4], [5], [6]]),
]


def member(structure, kind, seed=0):
    made = eqx.filter_jit({"arrowhead": Arrowhead, "chain": Chain}[kind].init)
    return away(made(structure.dim, key=jr.key(seed), structure=structure.with_kind(kind)), seed)


def arrays_within(jaxpr):
    """The shapes of everything that a program computes, in all of its parts."""
    for equation in jaxpr.eqns:
        yield from (v.aval.shape for v in equation.outvars if hasattr(v.aval, "shape"))
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if hasattr(inner, "jaxpr"):
                    inner = inner.jaxpr
                if hasattr(inner, "eqns"):
                    yield from arrays_within(inner)
