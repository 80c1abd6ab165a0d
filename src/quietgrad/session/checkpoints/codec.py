"""What a fit holds, as JSON and arrays: named tuples, frozen modules, containers, numbers and keys.

Objects are stored once and keep their identity. A class is stored by its name and must have been
imported by whoever reads it; making one again calls no code of its own. What cannot be named so (a
family that holds functions) is stored as the arrays that differ from a template both sides have.
"""

import dataclasses
import enum
import math
import sys
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..._util.device import on_device


class Encoder:
    """Collects `nodes` for the header and `arrays` for the body. `templates` are known to the reader."""

    def __init__(self, templates: Mapping[str, Any]):
        self.nodes: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []
        self._templates = {name: (tree, jax.tree.structure(tree)) for name, tree in templates.items()}
        self._places: dict[int, int] = {}
        # Objects stay alive as long as their addresses stand for them.
        self._alive: list[Any] = []

    def encode(self, value: Any) -> Any:
        """The value as JSON, with references to nodes."""
        match value:
            case enum.Enum():
                return {"enum": _name(type(value)), "value": value.value}
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

    def _node(self, value: Any) -> dict[str, Any]:
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return self._array(value)
        for name, (tree, structure) in self._templates.items():
            if type(value) is type(tree) and jax.tree.structure(value) == structure:
                pairs = zip(jax.tree.leaves(value), jax.tree.leaves(tree), strict=True)
                return {"like": name, "leaves": [self._leaf(leaf, there) for leaf, there in pairs]}
        if isinstance(value, tuple):
            return {"class": _name(type(value)), "items": [self.encode(item) for item in value]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            fields = {name: self.encode(getattr(value, name)) for name in names}
            return {"class": _name(type(value)), "fields": fields}
        raise TypeError(
            f"a checkpoint cannot hold {value!r:.80}: it stores numbers, arrays, containers, named "
            "tuples and frozen modules; use these in families, estimators and optimisers, or leave "
            "checkpoint out"
        )

    def _leaf(self, leaf: Any, there: Any) -> Any:
        return {"same": True} if leaf is there and not eqx.is_array(leaf) else self.encode(leaf)

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
            raise TypeError(f"a checkpoint cannot hold arrays of Python objects; got {value!r:.80}")
        self.arrays.append(array)
        return {**node, "dtype": array.dtype.name, "shape": list(array.shape)}


class Decoder:
    """Puts values together again, from the nodes of a header and the bytes of a body."""

    def __init__(self, nodes: list[dict[str, Any]], body: memoryview, templates: Mapping[str, Any]):
        self._nodes, self._body, self._templates = nodes, body, templates
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
                return _class(name, enum.Enum)(of)
            case {"list": items}:
                return [self.decode(item) for item in items]
            case {"tuple": items}:
                return tuple(self.decode(item) for item in items)
            case {"dict": items}:
                return {self.decode(k): self.decode(v) for k, v in items}
        raise ValueError(f"a checkpoint has no value of the form {value!r:.80}")

    def _make(self, node: dict[str, Any]) -> Any:
        match node:
            case {"array": place}:
                return self._array(node, self._offsets[place])
            case {"like": name, "leaves": stored}:
                leaves, structure = jax.tree.flatten(self._templates[name])
                same = {"same": True}
                pairs = zip(leaves, stored, strict=True)
                return jax.tree.unflatten(
                    structure, [leaf if each == same else self.decode(each) for leaf, each in pairs]
                )
            case {"class": name, "items": items}:
                return tuple.__new__(_class(name, tuple), [self.decode(item) for item in items])
            case {"class": name, "fields": fields}:
                made = object.__new__(_class(name, object))
                for field in dataclasses.fields(made):
                    value = _default(field.default, self.decode(fields[field.name]))
                    object.__setattr__(made, field.name, value)
                return made
        raise ValueError(f"a checkpoint has no object of the form {node!r:.80}")

    def _array(self, node: dict[str, Any], offset: int) -> Any:
        dtype, shape = jnp.dtype(node["dtype"]), tuple(node["shape"])
        flat = np.frombuffer(self._body, dtype, math.prod(shape), offset)
        array = flat.reshape(shape).copy()
        if node["kind"] == "key":
            return jr.wrap_key_data(on_device(array), impl=node["impl"])
        if node["kind"] == "jax":
            return on_device(array)
        return array if node["kind"] == "numpy" else array[()]


def _default(default: Any, value: Any) -> Any:
    """A class's own default where the value is that: it prints by what is not."""
    if not isinstance(default, eqx.Module) or jax.tree.leaves(value):
        return value
    return default if jax.tree.structure(default) == jax.tree.structure(value) else value


def _name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _found(name) is not kind:
        raise TypeError(
            f"a checkpoint cannot hold a {kind.__qualname__}: its class has to stand at the top of a "
            f"module under its own name, so that the next process finds it; move it there ({name}), "
            "or leave checkpoint out"
        )
    return name


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _class(name: str, above: type) -> Any:
    found = _found(name)
    if not isinstance(found, type) or not issubclass(found, above):
        raise ValueError(f"the checkpoint needs {name}, which this program has not imported; import it")
    if above is object and not dataclasses.is_dataclass(found):
        raise ValueError(f"the checkpoint names {name}, which is no module or dataclass")
    return found
