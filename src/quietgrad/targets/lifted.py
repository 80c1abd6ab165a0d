"""Functions whose captured arrays are arguments: closures made anew with other data share a program.

jit compares functions by identity and bakes what they capture into the program. Here a function is taken
apart into its code, which is compared, and the arrays that it holds (in its closure and its defaults, in
containers and in functions that it calls), which are passed in. Only floating-point arrays are lifted:
others may decide about shapes.

What a function reads from its module by name is part of the program, so its values are compared too: a
model whose global number or array has changed since is another model, even if its function is the same.
"""

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._fingerprint import Anew, Recipe, reads_data, reads_print
from .._host import on_device


class _Slot(NamedTuple):
    """Where an array was: its place in the list of all."""

    place: int


class _Held(NamedTuple):
    """A container of what a function holds: its leaves, and how they hang together."""

    leaves: tuple[Any, ...]
    structure: Any


class _Template(NamedTuple):
    """A function without its arrays."""

    code: types.CodeType
    module: dict[str, Any]
    defaults: _Held
    cells: tuple[_Held, ...]


class Lifted(eqx.Module):
    """A function put together from its code and arrays at each call."""

    arrays: tuple[Array, ...]
    template: Recipe[_Template] = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        """The function's value."""
        return _rebuilt(self.template.value, self.arrays)(*args)


def lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arrays lifted; the function itself where there is nothing to take apart."""
    if not isinstance(function, types.FunctionType):
        return function
    if Anew.needed(function):
        return Anew(function)
    if "<" not in function.__qualname__ and not reads_data(function):
        return function
    arrays: list[Array] = []
    try:
        template = _template(function, arrays, ())
    except _Unliftable:
        return function
    return Lifted(tuple(arrays), _TemplateRecipe(template))


class _Unliftable(Exception):
    """A function that refers to itself, or to a variable that is not set yet."""


class _TemplateRecipe(Recipe[_Template]):
    """Compares templates by code, module and what they hold besides arrays."""

    def __init__(self, template: _Template):
        self.value = template
        self._print = _printed(template)


def _template(
    function: types.FunctionType, arrays: list[Array], above: tuple[types.FunctionType, ...]
) -> _Template:
    if any(function is other for other in above):
        raise _Unliftable
    above = (*above, function)
    try:
        contents = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise _Unliftable from error
    defaults = _held((function.__defaults__, function.__kwdefaults__), arrays, above)
    cells = tuple(_held(content, arrays, above) for content in contents)
    return _Template(function.__code__, function.__globals__, defaults, cells)


def _held(content: Any, arrays: list[Array], above: tuple[types.FunctionType, ...]) -> _Held:
    leaves, structure = jax.tree.flatten(content)
    kept = []
    for leaf in leaves:
        if isinstance(leaf, jax.Array | np.ndarray) and np.issubdtype(leaf.dtype, np.floating):
            kept.append(_Slot(len(arrays)))
            arrays.append(on_device(leaf) if isinstance(leaf, np.ndarray) else leaf)
        elif isinstance(leaf, types.FunctionType) and leaf.__closure__:
            kept.append(_template(leaf, arrays, above))
        else:
            kept.append(leaf)
    return _Held(tuple(kept), structure)


def _rebuilt(template: _Template, arrays: tuple[Array, ...]) -> types.FunctionType:
    def put_back(held: _Held) -> Any:
        leaves = []
        for leaf in held.leaves:
            if isinstance(leaf, _Slot):
                leaves.append(arrays[leaf.place])
            elif isinstance(leaf, _Template):
                leaves.append(_rebuilt(leaf, arrays))
            else:
                leaves.append(leaf)
        return jax.tree.unflatten(held.structure, leaves)

    defaults, named = put_back(template.defaults)
    cells = tuple(types.CellType(put_back(held)) for held in template.cells)
    name = template.code.co_name
    function = types.FunctionType(template.code, template.module, name, defaults, cells)
    function.__kwdefaults__ = named
    return function


def _printed(template: _Template) -> Any:
    def printed(held: _Held) -> Any:
        leaves = []
        for leaf in held.leaves:
            if isinstance(leaf, _Slot):
                leaves.append(leaf)
            elif isinstance(leaf, _Template):
                leaves.append(_printed(leaf))
            else:
                leaves.append(Recipe(leaf))
        return tuple(leaves), held.structure

    cells = tuple(map(printed, template.cells))
    read = reads_print(template.code, template.module)
    return template.code, id(template.module), read, printed(template.defaults), cells
