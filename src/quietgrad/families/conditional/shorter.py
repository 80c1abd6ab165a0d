"""A function as the program that jax traces from it, with less in it than was written.

A model takes a point apart that a hierarchy has just put together from globals and locals. Derivatives
by the locals alone would then run through everything that depends on the globals only, and be zero
there: the derivatives of priors, and of their special functions. So what is a part of a part is read
from where it came, repeats are dropped, and jax sees what does not depend on the locals.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import Jaxpr, Literal, Var

from ..._util.simplify import simplified


def shorter(f: Callable[..., Any], *like: Any) -> Callable[..., Any]:
    """f for arguments of these shapes."""
    traced, out = jax.make_jaxpr(f, return_shape=True)(*like)
    form, leaves = jax.tree.structure(out), jax.tree.leaves(like)
    flat = jax.make_jaxpr(lambda *given: _evaluated(traced.jaxpr, traced.consts, given))(*leaves)
    program = simplified(flat.jaxpr)

    def again(*given: Any) -> Any:
        return jax.tree.unflatten(form, eval_jaxpr(program, flat.consts, *jax.tree.leaves(given)))

    return again


def _evaluated(jaxpr: Jaxpr, constants: Any, given: Any) -> list[Any]:
    """The values of a program, where parts of what was joined are taken from what it was joined from."""
    known: dict[Var, Any] = dict(
        zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *given], strict=True)
    )
    joined: dict[Any, list[Any]] = {}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        name, values = equation.primitive.name, [read(atom) for atom in equation.invars]
        first = equation.invars[0] if equation.invars else None
        parts = None if isinstance(first, Literal) else joined.get(first)
        if parts is not None and name == "split":
            ends = np.cumsum((0, *equation.params["sizes"])).tolist()
            found = [_part(parts, *ends[i : i + 2]) for i in range(len(ends) - 1)]
        elif parts is not None and name == "slice" and equation.params["strides"] is None:
            begin, end = equation.params["start_indices"][0], equation.params["limit_indices"][0]
            found = [_part(parts, begin, end)]
        else:
            bind = equation.primitive.get_bind_params(equation.params)
            with equation.ctx.manager:
                made = equation.primitive.bind(*values, **bind)
            found = made if equation.primitive.multiple_results else [made]
        if name == "concatenate" and values[0].ndim == 1:
            joined[equation.outvars[0]] = values
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _part(parts: list[Any], begin: int, end: int) -> Any:
    """Entries [begin, end) of the parts joined."""
    pieces, place = [], 0
    for part in parts:
        low, high = max(begin - place, 0), min(end - place, part.shape[0])
        if low < high:
            whole = low == 0 and high == part.shape[0]
            pieces.append(part if whole else jax.lax.slice(part, (low,), (high,)))
        place += part.shape[0]
    if not pieces:
        return jax.lax.slice(parts[0], (0,), (0,))
    return pieces[0] if len(pieces) == 1 else jax.lax.concatenate(pieces, 0)
