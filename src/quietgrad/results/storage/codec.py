"""What a fit holds, as JSON and arrays: named tuples, frozen modules, containers, numbers and keys.

Objects are stored once and keep their identity. A class is stored by its name (see `classes`); making
one again calls no code of its own, except for a class that is `Remade`. What cannot be named so (a
family that holds functions) is stored as the arrays that differ from a template both sides have.
"""

import dataclasses
import enum
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..._util.device import on_device
from .classes import class_of, name_of

# What a codec works for, in its messages.
CHECKPOINT = "a checkpoint"
# A leaf that is no array, and the same as in the template.
SAME = {"same": True}


@runtime_checkable
class Remade(Protocol):
    """A module that holds functions and is made again from settings: `type(x).remake(**x.settings)`.

    The settings are plain values. Arrays are stored, and take the places of those that `remake` makes.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """Keyword arguments of `remake`."""
        ...

    @classmethod
    def remake(cls, **settings: Any) -> Any:
        """A module of the same structure, with any numbers in it."""
        ...


class Encoder:
    """Collects `nodes` for the header and `arrays` for the body. `templates` are known to the reader."""

    def __init__(
        self,
        templates: Mapping[str, Any],
        what: str = CHECKPOINT,
        without: str = "or leave checkpoint out",
    ):
        self._what, self._without = what, without
        self.nodes: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []
        self._templates = {name: (tree, jax.tree.structure(tree)) for name, tree in templates.items()}
        self._places: dict[int, int] = {}
        # Values of a kind that the reader has, and what he calls them.
        self._given: dict[str, type] = {}
        # Objects stay alive as long as their addresses stand for them.
        self._alive: list[Any] = []

    def encode(self, value: Any) -> Any:
        """The value as JSON, with references to nodes."""
        match value:
            case enum.Enum():
                return {"enum": self._name(type(value)), "value": value.value}
            case None | bool() | int() | float() | str():
                return value
            case list():
                return {"list": [self.encode(item) for item in value]}
            case dict():
                return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
            case tuple() if not hasattr(value, "_fields"):
                return {"tuple": [self.encode(item) for item in value]}
        if id(value) not in self._places:
            node = self._node(value)
            self._alive.append(value)
            self._places[id(value)] = len(self.nodes)
            self.nodes.append(node)
        return {"node": self._places[id(value)]}

    def encode_like(self, name: str, value: Any) -> Any:
        """The value by its arrays alone, for a reader that has a template of this name."""
        return self.encode_leaves(name, jax.tree.leaves(value))

    def encode_leaves(self, name: str, leaves: Sequence[Any]) -> Any:
        """The same for leaves; what is no array is not stored."""
        stored = [self.encode(leaf) if eqx.is_array(leaf) else SAME for leaf in leaves]
        self.nodes.append({"like": name, "leaves": stored})
        return {"node": len(self.nodes) - 1}

    def encode_around(self, name: str, kind: type, value: Any) -> Any:
        """The value without what it holds of this kind, in place of which a reader puts his own."""
        self._given = {name: kind}
        try:
            return self.encode(value)
        finally:
            self._given = {}

    def _node(self, value: Any) -> dict[str, Any]:
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return self._array(value)
        for name, kind in self._given.items():
            if isinstance(value, kind):
                return {"given": name}
        for name, (tree, structure) in self._templates.items():
            if type(value) is type(tree) and jax.tree.structure(value) == structure:
                pairs = zip(jax.tree.leaves(value), jax.tree.leaves(tree), strict=True)
                return {"like": name, "leaves": [self._leaf(leaf, there) for leaf, there in pairs]}
        if isinstance(value, Remade):
            name, settings = self._name(type(value)), self.encode(dict(value.settings))
            leaves = [self.encode(leaf) for leaf in jax.tree.leaves(eqx.filter(value, eqx.is_array))]
            return {"remade": name, "settings": settings, "leaves": leaves}
        if isinstance(value, tuple):
            items = [self.encode(item) for item in value]
            return {
                "class": self._name(type(value)),
                "items": items,
                "names": [*getattr(value, "_fields", ())],
            }
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            fields = {name: self.encode(getattr(value, name)) for name in names}
            return {"class": self._name(type(value)), "fields": fields}
        raise TypeError(
            f"{self._what} cannot hold {value!r:.80}: it stores numbers, arrays, containers, named "
            "tuples and frozen modules; use these in families, estimators and optimisers, "
            f"{self._without}"
        )

    def _name(self, kind: type) -> str:
        return name_of(kind, self._what, self._without)

    def _leaf(self, leaf: Any, there: Any) -> Any:
        return SAME if leaf is there and not eqx.is_array(leaf) else self.encode(leaf)

    def _array(self, value: Any) -> dict[str, Any]:
        node: dict[str, Any] = {"array": len(self.arrays), "kind": "scalar"}
        if isinstance(value, jax.Array):
            node["kind"] = "jax"
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                node |= {"kind": "key", "impl": str(jr.key_impl(value))}
                value = jr.key_data(value)
        elif isinstance(value, np.ndarray):
            node["kind"] = "numpy"
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError(f"{self._what} cannot hold arrays of Python objects; got {value!r:.80}")
        self.arrays.append(array)
        # The name of a type of strings is no type's; that of bfloat16 is.
        dtype = array.dtype.str if array.dtype.kind in "SU" else array.dtype.name
        return {**node, "dtype": dtype, "shape": list(array.shape)}


class LikeMissing(ValueError):
    """A value was stored by its arrays alone, and the reader has no template to put them into."""


class Decoder:
    """Puts values together again, from the nodes of a header and the bytes of a body."""

    def __init__(
        self,
        nodes: list[dict[str, Any]],
        body: memoryview,
        templates: Mapping[str, Any],
        what: str = "the checkpoint",
    ):
        self._nodes, self._body, self._templates, self._what = nodes, body, templates, what
        self._made: dict[int, Any] = {}
        self._offsets, offset = [], 0
        for node in nodes:
            if "array" in node:
                self._offsets.append(offset)
                offset += math.prod(node["shape"]) * jnp.dtype(node["dtype"]).itemsize

    def decode(self, value: Any) -> Any:
        """What was encoded."""
        if not isinstance(value, dict):
            return value
        match value:
            case {"node": place}:
                if place not in self._made:
                    self._made[place] = self._make(self._nodes[place])
                return self._made[place]
            case {"enum": name, "value": of}:
                return class_of(name, enum.Enum, self._what)(of)
            case {"list": items}:
                return [self.decode(item) for item in items]
            case {"tuple": items}:
                return tuple(self.decode(item) for item in items)
            case {"dict": items}:
                return {self.decode(k): self.decode(v) for k, v in items}
        raise ValueError(f"{self._what} has no value of the form {value!r:.80}")

    def leaves(self, value: Any) -> tuple[Any, ...]:
        """What was encoded by `encode_leaves`, with None for what was not stored."""
        stored = self._nodes[value["node"]]["leaves"]
        return tuple(None if each == SAME else self.decode(each) for each in stored)

    def _make(self, node: dict[str, Any]) -> Any:
        match node:
            case {"given": name}:
                if name not in self._templates:
                    raise LikeMissing(name)
                return self._templates[name]
            case {"array": place}:
                return self._array(node, self._offsets[place])
            case {"like": name, "leaves": stored}:
                if name not in self._templates:
                    raise LikeMissing(name)
                return self._filled(self._templates[name], stored)
            case {"remade": name, "settings": settings, "leaves": stored}:
                kind = class_of(name, object, self._what)
                if not isinstance(kind, Remade):
                    raise ValueError(f"{self._what} names {name}, which is not made from settings")
                arrays, rest = eqx.partition(kind.remake(**self.decode(settings)), eqx.is_array)
                return eqx.combine(self._filled(arrays, stored), rest)
            case {"class": name, "items": items, **more}:
                found = [self.decode(item) for item in items]
                names: list[str] = more.get("names", [])
                kind = class_of(name, tuple, self._what, names)
                return tuple.__new__(kind, self._in_order(kind, names, found) if names else found)
            case {"class": name, "fields": fields}:
                kind = class_of(name, object, self._what, [*fields])
                return self._module(kind, {each: self.decode(value) for each, value in fields.items()})
        raise ValueError(f"{self._what} has no object of the form {node!r:.80}")

    def _filled(self, tree: Any, stored: Sequence[Any]) -> Any:
        """The tree with stored leaves in the places of its own."""
        leaves, structure = jax.tree.flatten(tree)
        if len(leaves) != len(stored):
            raise ValueError(
                f"{self._what} has {len(stored)} arrays for a {type(tree).__name__} with {len(leaves)}; "
                "it was made otherwise, or by another version"
            )
        found = [
            leaf if each == SAME else self.decode(each)
            for leaf, each in zip(leaves, stored, strict=True)
        ]
        for leaf, there in zip(leaves, found, strict=True):
            if eqx.is_array(leaf) and np.shape(leaf) != np.shape(there):
                raise ValueError(
                    f"{self._what} has an array of shape {np.shape(there)} for a {type(tree).__name__} "
                    f"with one of shape {np.shape(leaf)}; it was made with other settings"
                )
        return jax.tree.unflatten(structure, found)

    def _module(self, kind: Any, values: dict[str, Any]) -> Any:
        """A module or dataclass with these fields; one that is new since has its default."""
        made = object.__new__(kind)
        known = {field.name: field for field in dataclasses.fields(made)}
        self._check_fields(kind, values, known)
        for name, field in known.items():
            if name in values:
                value = _default(field.default, values[name])
            elif field.default is not dataclasses.MISSING:
                value = field.default
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            elif (value := _argument_default(kind, name)) is not dataclasses.MISSING:
                pass
            else:
                raise ValueError(
                    f"{self._what} has no {name!r} for a {kind.__qualname__}, which needs one"
                )
            object.__setattr__(made, name, value)
        return made

    def _in_order(self, kind: Any, names: Sequence[str], found: Sequence[Any]) -> list[Any]:
        values = dict(zip(names, found, strict=True))
        self._check_fields(kind, values, kind._fields)
        values = {**kind._field_defaults, **values}
        missing = [name for name in kind._fields if name not in values]
        if missing:
            raise ValueError(
                f"{self._what} has no {missing[0]!r} for a {kind.__qualname__}, which needs one"
            )
        return [values[name] for name in kind._fields]

    def _check_fields(self, kind: Any, values: Mapping[str, Any], known: Any) -> None:
        gone = [name for name in values if name not in known]
        if gone:
            raise ValueError(
                f"{self._what} has a {kind.__qualname__} with a field {gone[0]!r}, which this version "
                "does not know"
            )

    def _array(self, node: dict[str, Any], offset: int) -> Any:
        dtype, shape = jnp.dtype(node["dtype"]), tuple(node["shape"])
        flat = np.frombuffer(self._body, dtype, math.prod(shape), offset)
        array = flat.reshape(shape).copy()
        if node["kind"] in ("jax", "key") and jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise ValueError(
                f"{self._what} has {dtype.name} arrays, which this process would round; call "
                "jax.config.update('jax_enable_x64', True) first"
            )
        if node["kind"] == "key":
            return jr.wrap_key_data(on_device(array), impl=node["impl"])
        if node["kind"] == "jax":
            return on_device(array)
        return array if node["kind"] == "numpy" else array[()]


def _argument_default(kind: Any, name: str) -> Any:
    """The default of the argument of this name, for a class with a constructor of its own."""
    given = inspect.signature(kind).parameters.get(name)
    return dataclasses.MISSING if given is None or given.default is given.empty else given.default


def _default(default: Any, value: Any) -> Any:
    """A class's own default where the value is that: it prints by what is not."""
    if type(default) is not type(value) or eqx.is_array(value):
        return value
    return default if eqx.tree_equal(default, value) is True else value
