"""A PyMC model as a target: PyMC's own log density on its unconstrained scale, through its JAX back end.

Points are dicts of PyMC's value variables ("std_log__"). Containers of data (`pm.Data`) and observed
arrays are arguments of what is compiled, so `pm.set_data` and a second fit compile nothing.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from .._util.device import on_device
from .._util.extras import needs_extra
from ..targets import AbstractNamedModel, Target

with needs_extra("pymc", "a PyMC model"):
    import pymc
    import pymc.sampling.jax  # noqa: F401  (teaches PyTensor's JAX back end PyMC's own operations)
    from pymc.model.transform.optimization import freeze_dims_and_data
    from pymc.pytensorf import SharedVariable
    from pymc.util import get_default_varnames
    from pytensor.compile import mode
    from pytensor.graph.basic import Constant
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.replace import clone_replace
    from pytensor.graph.traversal import ancestors
    from pytensor.link.jax.dispatch.basic import jax_funcify
    from pytensor.tensor.basic import constant
    from pytensor.tensor.random.type import RandomType

    from .pymc_predictive import predicted
    from .pymc_rows import ADVICE, RowPrograms, Unseparated, row_programs

Point = dict[str, Float[Array, "..."] | Float[np.ndarray, "..."]]


class _Program(NamedTuple):
    """JAX functions of the value variables and the data, and what they are called.

    Compared and hashed as the tuple it is: by the identity of its functions.
    """

    # All of the log density but the rows, and these; or all of it, and why there are none.
    log_prior: Callable[..., Any]
    rows: RowPrograms | Unseparated
    constrain: Callable[..., Any]
    log_likelihoods: Callable[..., Any]
    values: tuple[str, ...]
    variables: tuple[str, ...]
    observed: tuple[str, ...]


# A model is turned into JAX once. What is added to it later changes the list of its variables.
_PROGRAMS: weakref.WeakKeyDictionary[Any, tuple[list[Any], _Program]] = weakref.WeakKeyDictionary()


class PymcModel(AbstractNamedModel):
    """A PyMC model with the data that it held when it was read."""

    data: tuple[Array, ...]
    program: _Program = eqx.field(static=True)
    source: Any = eqx.field(static=True)

    def log_prior(self, point: Point) -> Float[Array, ""]:
        """The log density but the rows, or all of it if there are none: `model.compile_logp()`."""
        return self.program.log_prior(*self._inputs(point))[0]

    def log_likelihood(self, point: Point, rows: tuple[Array, ...]) -> Float[Array, " rows"]:
        """Of each row, given the data that have no rows."""
        programs = self.program.rows
        assert isinstance(programs, RowPrograms)
        return programs([point[name] for name in self.program.values], rows, self.data)

    def constrain(self, point: Point) -> dict[str, Array]:
        """Free and deterministic variables."""
        values = self.program.constrain(*self._inputs(point))
        return dict(zip(self.program.variables, values, strict=True))

    def variables(self) -> tuple[str, ...]:
        """The free variables."""
        return tuple(v.name for v in self.source.free_RVs)

    def unconstrain(self, values: dict[str, Array]) -> Point:
        """By PyMC's own transforms, which may depend on other variables."""
        given = [values[name] for name in self.variables()]
        found = _inverse(self.source)(*given, *self.data)
        return dict(zip(self.program.values, found, strict=True))

    def log_likelihoods(self, point: Point) -> dict[str, Array]:
        """Of every observed variable, element by element."""
        if not self.program.observed:
            return {}
        values = self.program.log_likelihoods(*self._inputs(point))
        return dict(zip(self.program.observed, values, strict=True))

    def observed(self) -> dict[str, Any]:
        """The values of the observed variables."""
        values = self.source.rvs_to_values
        return {v.name: np.asarray(_held(values[v])) for v in self.source.observed_RVs}

    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """As the model says."""
        return {name: tuple(dims) for name, dims in self.source.named_vars_to_dims.items()}

    def point_dims(self) -> Mapping[str, Sequence[str | None]]:
        """Those of the variables, for axes that keep their length on the unconstrained scale."""
        shapes, named = self.source.eval_rv_shapes(), self.dims()
        found = {}
        for variable in self.source.free_RVs:
            value, dims = self.source.rvs_to_values[variable].name, named.get(variable.name, ())
            own, free = shapes[variable.name], shapes[value]
            if dims and len(own) == len(free):
                kept = zip(dims, own, free, strict=True)
                found[value] = [dim if before == after else None for dim, before, after in kept]
        return found

    def coords(self) -> Mapping[str, Any]:
        """As the model says."""
        return {name: list(v) for name, v in self.source.coords.items() if v is not None}

    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """What `pymc.sample_posterior_predictive` gives, with the data that the model holds by now."""
        if args or kwargs:
            raise ValueError(
                "a PyMC model takes no arguments; change its data with pymc.set_data and call "
                "predictive without any"
            )
        free = {v.name for v in self.source.free_RVs}
        chosen = {name: np.asarray(x) for name, x in draws.items() if name in free}
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        # PyMC would draw anew, from their priors, variables that depend on dims or data that might
        # have changed since; frozen, they cannot have.
        with _without_initial_values(self.source):
            frozen = freeze_dims_and_data(self.source)
        return predicted(frozen, chosen, seed)

    def _inputs(self, point: Point) -> list[Any]:
        return [*(point[name] for name in self.program.values), *self.data]


@contextmanager
def _without_initial_values(model: Any) -> Iterator[None]:
    """The model as PyMC can freeze it; where chains begin is nothing that predictions depend on."""
    before = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(before))
    try:
        yield
    finally:
        model.rvs_to_initial_values.update(before)


def target_of(model: Any) -> Target:
    """The target of a PyMC model. Importing PyMC's JAX back end turns on double precision in JAX."""
    if not isinstance(model, pymc.Model):
        raise TypeError(f"model must be a pymc.Model; got {type(model).__name__}")
    discrete = [v.name for v in model.free_RVs if v.dtype.startswith(("int", "uint", "bool"))]
    if discrete:
        raise ValueError(
            f"the model has discrete variables without data ({', '.join(discrete)}), so it has no "
            "density over the reals; sum them out, for example with pymc_extras.marginalize"
        )
    example = {name: np.asarray(value) for name, value in model.initial_point().items()}
    density = model.logp()
    data = _data(model, density)
    program = _program(model, density, data, example)
    # Copies, as jax may share the memory of arrays that pm.set_data changes.
    made = PymcModel(tuple(on_device(np.array(_held(v))) for v in data), program, model)
    if isinstance(program.rows, Unseparated):
        reason = f"{program.rows.reason}; {ADVICE}"
        return Target(made.log_prior, example=example, model=made, no_rows=reason)
    rows = tuple(on_device(np.array(x)) for x in program.rows.rows())
    return Target(made.log_prior, made.log_likelihood, rows, example=example, model=made)


def _program(model: Any, density: Any, data: list[Any], example: Mapping[str, np.ndarray]) -> _Program:
    shapes = [(v, _held(v).shape) for v in data]
    written = [(v, v.get_value().tobytes()) for v in _shared(model, density) if v not in data]
    recipe = [*model.basic_RVs, *model.deterministics, *model.potentials, shapes, written]
    known = _PROGRAMS.get(model)
    if known is not None and known[0] == recipe:
        return known[1]
    variables = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    observed, values = model.observed_RVs, model.value_vars
    rows = row_programs(model, data, example, _held, _jaxified)
    if isinstance(rows, RowPrograms):
        rest = [v for v in model.basic_RVs if v not in observed or not v.ndim]
        density = model.logp(vars=[*rest, *model.potentials])
    made = _Program(
        _jaxified([density], values, dict(shapes)),
        rows,
        _jaxified(variables, values, dict(shapes)),
        _jaxified(model.logp(vars=observed, sum=False) if observed else [], values, dict(shapes)),
        tuple(v.name for v in values),
        tuple(v.name for v in variables),
        tuple(v.name for v in observed),
    )
    _PROGRAMS[model] = recipe, made
    return made


def _shared(model: Any, density: Any) -> list[Any]:
    """Everything with a value that `pm.set_data` or `model.set_dim` can change."""
    outputs = [density, *model.unobserved_value_vars]
    return [v for v in ancestors(outputs) if isinstance(v, SharedVariable)]


def _inverse(model: Any) -> Callable[..., Any]:
    """The value variables as a JAX function of the free variables and the data. Made when asked for."""
    found: list[Any] = []
    for variable in model.free_RVs:
        transform = model.rvs_to_transforms[variable]
        inputs = () if transform is None else variable.owner.inputs
        found.append(variable if transform is None else transform.forward(variable, *inputs))
    # In place of what would be drawn at random.
    places = {variable: variable.type() for variable in model.free_RVs}
    found = clone_replace(found, replace=places, rebuild_strict=False)
    shapes = {v: _held(v).shape for v in _data(model, model.logp())}
    return _jaxified(found, [*places.values()], shapes)


def _data(model: Any, density: Any) -> list[Any]:
    """Arrays that the log density depends on: containers of data, and what was observed."""
    found: list[Any] = list(ancestors([density]))
    if any(isinstance(v.type, RandomType) for v in found):
        raise ValueError(
            "the log density draws rows at random, as pm.Minibatch does, so it differs from one "
            "evaluation to the next; give the model all rows, without pm.Minibatch and total_size, and "
            "batch_size=... to fit"
        )
    seen = [model.rvs_to_values[v] for v in model.observed_RVs]
    held: list[Any] = [v for v in [*found, *seen] if isinstance(v, SharedVariable) or v in seen]
    # Numbers without axes are lengths, which JAX wants to know while tracing.
    return [v for v in dict.fromkeys(held) if v.ndim]


def _held(variable: Any) -> np.ndarray:
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    assert isinstance(variable, Constant)
    return np.asarray(variable.data)


def _jaxified(
    outputs: list[Any],
    values: list[Any],
    data: Mapping[Any, tuple[int, ...]],
    lengths: Mapping[Any, np.ndarray] = {},
) -> Callable[..., PyTree]:
    """Outputs as a JAX function of the value variables and the data, which have these shapes.

    `lengths` are numbers that take the places of those in the graph.
    """
    places = [v.type.clone(shape=shape)() for v, shape in data.items()]
    fixed = [v for v in ancestors(outputs) if isinstance(v, SharedVariable) and v not in data]
    replace: dict[Any, Any] = {v: constant(v.get_value()) for v in fixed}
    replace |= {v: constant(number, dtype=v.type.dtype) for v, number in lengths.items()}
    replace |= dict(zip(data, places, strict=True))
    outputs = clone_replace(outputs, replace=replace, rebuild_strict=False)
    graph = FunctionGraph(inputs=[*values, *places], outputs=outputs, clone=True)
    optimizer: Any = mode.JAX.optimizer
    optimizer.rewrite(graph)
    return jax_funcify(graph)
