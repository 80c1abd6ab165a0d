"""From a NumPyro model and its arguments to a target: what it consists of, and where its rows are."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._util.compiling import ONCE, program
from ..._util.device import on_device
from ..._util.tracing import Traced, traced
from ...targets import Target
from .handled import constant, put_together, take_apart
from .model import NumpyroModel, Point
from .parameters import Parameters, open_parameters, substituted
from .rows import Rows, candidate, subsampled
from .structure import Given, HasParametersError, Structure, abstractly, structure_of

# What jax raises when a model needs the numbers of an array that has none while tracing.
NEEDS_NUMBERS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


NO_ROWS = (
    "rows of the NumPyro model cannot be told apart: they come from one plate, or one vector, that has "
    "observed sites only, and from arguments that the model indexes by the plate's rows or that have a "
    "row for each; write the model so, or leave batch_size out, and all rows are used"
)


def target_of(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Target:
    """The target of a NumPyro model that is called with these arguments."""
    if not callable(model):
        raise TypeError(
            f"model must be a NumPyro model, a function, and its arguments follow; "
            f"got {type(model).__name__}"
        )
    found = None
    try:
        made, preferred = _read(take_apart((model, args, kwargs)))
    except HasParametersError:
        found = open_parameters(model, args, kwargs)
        made, preferred = _read(take_apart((substituted(model, found), args, kwargs)))
    made, data, size = _with_rows(made, preferred)
    if found is not None:
        return _with_parameters(Parameters(made, found), data, size)
    if data is None:
        return Target(made.log_prior, example=made.origin(), model=made, no_rows=NO_ROWS)
    return Target(made.log_prior, made.log_likelihood, data, size, example=made.origin(), model=made)


def _with_parameters(parameters: Parameters, data: PyTree[Array] | None, size: int | None) -> Target:
    """A target whose functions take the model's parameters as hyperparameters."""

    def log_prior(point: Point, h: PyTree) -> Float[Array, ""]:
        return parameters.log_prior(point, h)

    def log_likelihood(point: Point, data: PyTree[Array], h: PyTree) -> Float[Array, " rows"]:
        return parameters.log_likelihood(point, data, h)

    made = parameters.made
    return Target(
        log_prior,
        None if data is None else log_likelihood,
        data,
        size,
        example=made.origin(),
        model=made,
        parameters=parameters,
        no_rows=NO_ROWS if data is None else "",
    )


def _read(call: PyTree) -> tuple[NumpyroModel, list[str]]:
    """The model and the plates that it subsamples; arrays whose numbers it needs become constants."""
    try:
        return _on_all_rows(call)
    except NEEDS_NUMBERS:
        pass
    try:
        return _on_all_rows(constant(call, only_integers=True))
    except NEEDS_NUMBERS:
        return _on_all_rows(constant(call, only_integers=False))


def _on_all_rows(call: PyTree) -> tuple[NumpyroModel, list[str]]:
    """The model on all rows of its plates; on those that it takes, if its data have no more."""
    arrays, rest = eqx.partition(call, eqx.is_array)

    def read(rows: dict[str, int]) -> Structure:
        def look(arrays: PyTree) -> Structure:
            model, args, kwargs = put_together(eqx.combine(arrays, rest))
            given = {name: jnp.arange(count) for name, count in rows.items()}
            return structure_of(Given(model, given), args, kwargs)

        return abstractly(look, arrays)

    leaves, form = jax.tree.flatten(call)
    made = functools.partial(NumpyroModel, tuple(leaves), form)
    first = read({})
    names, plates = subsampled(first), dict(first.plates)
    if not names:
        return made(first, ()), []
    every, some = ({n: getattr(plates[n], which) for n in names} for which in ("size", "taken"))
    try:
        whole = made(read(every), tuple(every.items()))
        eqx.filter_eval_shape(whole.log_prior, whole.origin())
    except NEEDS_NUMBERS:
        raise
    except Exception:  # a model may raise anything at data that do not fit its plates
        whole = made(read(some), tuple(some.items()))
    return whole, names


def _with_rows(
    made: NumpyroModel, preferred: list[str]
) -> tuple[NumpyroModel, PyTree[Array] | None, int | None]:
    """The model, its rows and what their number stands for; no rows where they cannot be told apart."""
    found = candidate(made.structure, preferred)
    if found is None:
        return made, None, None
    plate, axes, size = found
    count = size if plate is None else dict(made.structure.plates)[plate].taken
    by_number = dataclasses.replace(made, rows=Rows(plate, axes, None))
    numbers = on_device(np.arange(count), np.int32)
    if plate is not None and count == size and _takes_rows(by_number, numbers):
        return by_number, numbers, size
    cut = tuple(
        i for i, x in enumerate(made.leaves) if eqx.is_array(x) and x.ndim and x.shape[0] == count
    )
    data = tuple(made.leaves[i] for i in cut)
    by_argument = dataclasses.replace(made, rows=Rows(plate, axes, cut))
    if cut and _finite(data) and _takes_rows(by_argument, data) and _separate(by_argument, data):
        return by_argument, data, size
    return made, None, None


def _takes_rows(made: NumpyroModel, data: PyTree[Array]) -> bool:
    """Whether the model runs on one more row than it has: one that ignores its rows does not."""
    count = jax.tree.leaves(data)[0].shape[0] + 1
    more = jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape[1:]), x.dtype), data)
    try:
        return eqx.filter_eval_shape(made.log_likelihood, made.origin(), more).shape == (count,)
    except Exception:  # a model may raise anything at rows it was not written for
        return False


def _finite(data: tuple[Array, ...]) -> bool:
    """Missing values that a model masks are no rows that a target takes."""
    return all(np.isfinite(x).all() for x in map(np.asarray, data) if x.dtype.kind == "f")


def _separate(made: NumpyroModel, data: tuple[Array, ...]) -> bool:
    """Whether the last half of the rows, backwards, gets from the model what it gets among all."""
    noise = np.random.default_rng(0)
    point = {name: x + 0.3 * noise.normal(size=x.shape) for name, x in made.origin().items()}
    likelihood = traced(made.log_likelihood, made.origin(), data)
    among_all, alone = map(np.asarray, _halves(likelihood, point, data))
    tolerance = np.sqrt(np.finfo(alone.dtype).eps)
    return np.allclose(among_all, alone, rtol=tolerance, atol=tolerance, equal_nan=True)


@program(level=ONCE)
def _halves(
    log_likelihood: Traced, point: Point, data: tuple[Array, ...]
) -> tuple[Float[Array, " half"], Float[Array, " half"]]:
    half = data[0].shape[0] // 2
    last = tuple(x[::-1][:half] for x in data)
    return log_likelihood(point, data)[::-1][:half], log_likelihood(point, last)
