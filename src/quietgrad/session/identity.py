"""What a checkpoint belongs to: model, data, family, method, key and versions, as names and short words.

Functions are distinguished by the programs that jax traces from them, not by where or how they are
written: a model whose helper changed is another one, and one that was only moved is the same. In a new
process nothing else can be compared, since closures have no address that lasts.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from .._util.later import optax
from .._util.random import key_words
from .._version import __version__
from ..families import AbstractFamily
from ..targets import Target

# Differences that a message names.
SHOWN = 4


def identity(
    target: Target,
    q: AbstractFamily,
    method: Any,
    *,
    key: Key[Array, ""],
    **settings: Any,
) -> dict[str, str]:
    """What has to be the same for a fit to go on, by name."""
    found = {"quietgrad": __version__, "jax": jax.__version__, "key": str(key_words(key))}
    found |= {name: repr(value) for name, value in settings.items()}
    found |= dict(_parts("family", q, q))
    found |= dict(_parts("method", method, q))
    return found | dict(_target(target, q))


def differences(stored: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """In words, what is not the same; nothing about the parts of something that is different itself."""
    names = [name for name in {**stored, **given} if stored.get(name) != given.get(name)]
    tops = [name for name in names if not any(name != up and _inside(name, up) for up in names)]
    nothing = "nothing"
    return [f"{n}: {stored.get(n, nothing)} is stored, {given.get(n, nothing)} was given" for n in tops]


def _inside(name: str, above: str) -> bool:
    return name.startswith((f"{above}.", f"{above}["))


def _target(target: Target, q: AbstractFamily) -> Iterator[tuple[str, str]]:
    arrays, static = eqx.partition(target, eqx.is_array)
    for path, leaf in jax.tree_util.tree_leaves_with_path(arrays):
        yield f"target{jax.tree_util.keystr(path)}", _numbers(leaf)
    yield "target.size", str(target.size)
    z = jax.ShapeDtypeStruct((q.dim,), q.dtype)

    def prior(arrays: Target, z: Array) -> Array:
        whole = eqx.combine(arrays, static)
        return whole.log_prior(whole.point(z))

    yield "target.log_prior", _program(prior, arrays, z)
    if target.log_likelihood is not None:

        def likelihood(arrays: Target, z: Array) -> Array:
            return eqx.combine(arrays, static).log_likelihoods(z)

        yield "target.log_likelihood", _program(likelihood, arrays, z)


def _parts(name: str, value: Any, q: AbstractFamily) -> Iterator[tuple[str, str]]:
    """A value and what it is made of."""
    match value:
        case optax.GradientTransformation():
            yield name, _optimizer(value, q)
        case jax.Array() | np.ndarray() | np.generic():
            yield name, _numbers(value)
        case None | bool() | int() | float() | complex() | str() | bytes():
            yield name, repr(value)
        case type():
            yield name, value.__qualname__
        case tuple() | list():
            yield name, f"{type(value).__name__} of {len(value)}"
            for place, item in enumerate(value):
                yield from _parts(f"{name}[{place}]", item, q)
        case dict():
            yield name, f"dict of {', '.join(map(repr, value))}"
            for key, item in value.items():
                yield from _parts(f"{name}[{key!r}]", item, q)
        case _:
            yield name, getattr(value, "__qualname__", type(value).__qualname__)
            if dataclasses.is_dataclass(value):
                for field in dataclasses.fields(value):
                    yield from _parts(f"{name}.{field.name}", getattr(value, field.name), q)


def _optimizer(optimizer: "optax.GradientTransformation", q: AbstractFamily) -> str:
    """An optimiser by its programs: what it starts with, and how it updates."""
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), _trained(q))
    state = jax.eval_shape(optimizer.init, params)
    programs = _program(optimizer.init, params), _program(optimizer.update, params, state, params)
    return f"optimiser {_digest(*(program.encode() for program in programs))}"


def _trained(q: AbstractFamily) -> Any:
    return eqx.filter(q, eqx.is_inexact_array)


def _program(function: Callable[..., Any], *args: Any) -> str:
    """The program of a function, without the addresses that differ from process to process."""
    closed = jax.make_jaxpr(function)(*args)
    text = re.sub(r"0x[0-9a-f]+", "0x", str(closed))
    return f"program {_digest(text.encode(), *_constants(closed))}"


def _constants(closed: Any) -> Iterator[bytes]:
    """The numbers that a program and those inside it hold."""
    for constant in getattr(closed, "consts", ()):
        yield _numbers(constant).encode()
    for equation in getattr(closed, "jaxpr", closed).eqns:
        for value in equation.params.values():
            for each in value if isinstance(value, tuple | list) else (value,):
                if hasattr(each, "jaxpr") or hasattr(each, "eqns"):
                    yield from _constants(each)


def _numbers(array: Any) -> str:
    if isinstance(array, jax.Array) and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    shape = ", ".join(map(str, array.shape))
    # As bytes without a copy: data may be large.
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype.name}[{shape}] {_digest(flat.data)}"


def _digest(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return f"#{digest.hexdigest()[:12]}"
