"""Rows of a PyMC model: a likelihood for some of its observations, if that needs no other ones.

Rows lie along the first axis of the observed variables. Arrays of as many rows that their log densities
depend on (`pm.Data`, what was observed, or arrays written into the model) are cut with them. The back
end wants to know shapes, so a graph is made for every number of rows that is asked for. Whether rows are
separate is found out by comparing: half of them must get what they get among all.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pymc.pytensorf import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.type import TensorType

from .._util.compiling import program

# Makes a JAX function of outputs, value variables, data with their shapes, and numbers for others.
Jaxified = Callable[
    [list[Any], list[Any], Mapping[Any, tuple[int, ...]], Mapping[Any, np.ndarray]], Callable[..., Any]
]
# The value of a container of data or of a constant.
Held = Callable[[Any], np.ndarray]

ADVICE = (
    "give inputs with a row for each observation as pm.Data or arrays whose first axis is the rows, and "
    "neither total_size nor a latent variable for each row; or leave batch_size out, and all rows are "
    "used"
)


class Unseparated(NamedTuple):
    """Why a model has no rows that a minibatch could leave out."""

    reason: str


class RowPrograms:
    """The log likelihood of each row, as JAX functions of the value variables and the rows.

    `cut` are the variables that hold rows; others among the `data` go to every row. Compared by
    identity, as one belongs to one model.
    """

    def __init__(
        self,
        outputs: list[Any],
        values: list[Any],
        cut: list[Any],
        data: list[Any],
        held: Held,
        jaxified: Jaxified,
    ):
        self.cut, self._held = cut, held
        self._uncut = [number for number, v in enumerate(data) if v not in cut]
        # As they are now: containers may get arrays of other shapes.
        self._row_shapes = {v: held(v).shape[1:] for v in cut}
        self._shapes = {data[number]: held(data[number]).shape for number in self._uncut}
        self._outputs, self._values, self._jaxified = outputs, values, jaxified
        self._lengths = _lengths(outputs, held(cut[0]).shape[0], held)
        self._made: dict[int, Callable[..., Any]] = {}
        # PyTensor's rewrites are not for two threads at once.
        self._lock = threading.Lock()

    def rows(self) -> tuple[np.ndarray, ...]:
        """All rows, as the model holds them now."""
        return tuple(self._held(v) for v in self.cut)

    def __call__(
        self, point: Sequence[Any], rows: Sequence[Array], data: Sequence[Array]
    ) -> Float[Array, " rows"]:
        """One value for each row, summed over the observed variables and their other axes."""
        count, others = rows[0].shape[0], [data[number] for number in self._uncut]
        found = self._program(count)(*point, *rows, *others)
        if any(jnp.shape(value)[:1] != (count,) for value in found):
            raise ValueError(f"{count} rows gave {[jnp.shape(value) for value in found]}")
        return sum((jnp.sum(x.reshape(count, -1), axis=1) for x in found), start=jnp.zeros(count))

    def _program(self, count: int) -> Callable[..., Any]:
        with self._lock, jax.ensure_compile_time_eval():
            if count not in self._made:
                shapes = {v: (count, *shape) for v, shape in self._row_shapes.items()}
                lengths = {v: _with_first(self._held(v), count) for v in self._lengths}
                self._made[count] = self._jaxified(
                    self._outputs, self._values, shapes | self._shapes, lengths
                )
            return self._made[count]


def in_rows(model: Any, held: Held) -> tuple[list[Any], int] | Unseparated:
    """The observed variables that have rows, and the number of rows."""
    with_axes = [v for v in model.observed_RVs if v.ndim]
    if not with_axes:
        return Unseparated("no variable of the PyMC model is observed with an axis of rows")
    counts = {v.name: held(model.rvs_to_values[v]).shape[0] for v in with_axes}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
        return Unseparated(f"observed variables of the PyMC model differ in their rows: {told}")
    (count,) = {*counts.values()}
    return (with_axes, count) if count > 1 else Unseparated("the PyMC model has a single row")


def row_programs(
    model: Any, data: list[Any], point: Mapping[str, np.ndarray], held: Held, jaxified: Jaxified
) -> RowPrograms | Unseparated:
    """The likelihood of rows, or why there is none. `data` are the containers of data and observed
    values, and `point` is one at which the density is finite.
    """
    found = in_rows(model, held)
    if isinstance(found, Unseparated):
        return found
    variables, count = found
    outputs: list[Any] = model.logp(vars=variables, sum=False)
    inputs = list(dict.fromkeys(v for v in ancestors(outputs) if _has_rows(v, count, held)))
    values, written = model.value_vars, [v for v in inputs if v not in data]
    for cut in [inputs, [v for v in inputs if v in data]] if written else [inputs]:
        if not all(np.all(np.isfinite(held(v))) for v in cut if held(v).dtype.kind == "f"):
            return Unseparated("rows of the PyMC model's data have NaN or infinite values")
        if not cut:
            break
        made = RowPrograms(outputs, values, cut, data, held, jaxified)
        known = [jnp.asarray(held(v)) for v in data]
        if _separate(made, [point[v.name] for v in values], known, count):
            return made
    return Unseparated(
        f"the likelihood of some of the {count:,} rows of the PyMC model cannot be had without the "
        "others"
    )


def _has_rows(variable: Any, count: int, held: Held) -> bool:
    if not isinstance(variable, SharedVariable | Constant) or not isinstance(variable.type, TensorType):
        return False
    return held(variable).shape[:1] == (count,)


def _lengths(outputs: list[Any], count: int, held: Held) -> list[Any]:
    """Numbers in shapes that are the number of rows, or shapes that begin with it.

    PyMC writes the length of what was observed, or of a dim, into the graph.
    """
    nodes = {v.owner for v in ancestors(outputs) if v.owner is not None}
    shapes = [v for node in nodes if isinstance(node.op, Alloc) for v in node.inputs[1:]]
    return [
        v
        for v in dict.fromkeys(ancestors(shapes))
        if isinstance(v, SharedVariable | Constant) and isinstance(v.type, TensorType)
        if v.type.dtype.startswith("int") and v.type.ndim < 2 and list(held(v).flat)[:1] == [count]
    ]


def _with_first(shape: np.ndarray, count: int) -> np.ndarray:
    """A shape, or a length, with another number of rows."""
    changed = shape.copy()
    changed.flat[0] = count
    return changed


def _separate(made: RowPrograms, point: Sequence[np.ndarray], data: Sequence[Array], count: int) -> bool:
    """Whether half of the rows, backwards, get what they get among all."""
    noise, half = np.random.default_rng(0), max(1, count // 2)
    near = [jnp.asarray(x + 0.1 * noise.normal(size=np.shape(x))) for x in point]
    rows = [jnp.asarray(x) for x in made.rows()]

    @program
    def both(near: Any, rows: Any, data: Any) -> tuple[Array, Array]:
        last = [x[::-1][:half] for x in rows]
        return made(near, rows, data)[::-1][:half], made(near, last, data)

    try:
        among_all, alone = map(np.asarray, both(near, rows, data))
    except Exception:  # a model may raise anything at rows that it was not written for
        return False
    tolerance = np.sqrt(np.finfo(alone.dtype).eps)
    return bool(np.allclose(among_all, alone, rtol=tolerance, atol=tolerance, equal_nan=True))
