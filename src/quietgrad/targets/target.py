"""The target of inference, f(z) = (N/B) sum_i log p(x_i | z) + log p(z) (the paper's eq. 8).

`data` holds the B rows at hand and `size` is N, so a minibatch is the same target with fewer rows. It
keeps the numbers of its rows, for estimators that remember something about each of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from .._util.checks import whole
from .._util.device import on_device
from .._util.extras import adapter
from .._util.tracing import Traced
from .checks import (
    HYPERPARAMETERS_MISSING,
    batch_size_within,
    check_arguments,
    takes_more,
    traced_function,
)
from .named_model import AbstractNamedModel, AbstractParameters
from .read_model import read_model
from .row_blocks import AbstractRows, mapped


class Target(eqx.Module):
    """An unnormalised log posterior: `log_prior(z)` plus `log_likelihood(z, data)` summed over rows.

    `log_likelihood` gets one point and the rows (a pytree of arrays with a common leading axis) and
    returns one value per row; it is left out for a density without data. `size` is the number of
    rows the sum stands for, N; it defaults to the rows given. Points are flat vectors of length
    `dim`, or pytrees shaped like `example`. Without either, the length is taken from the variational
    family and checked when an estimator is initialised. `model` is the probabilistic program that the
    target was made from, if it was: it knows the names and the scale of the user.

    Functions and data are read when the target is made, or by the fit if the length is not known before:
    arrays that functions capture are copied, like `data`, and what changes afterwards, in place or by
    name, is that of the next target. One whose arrays alone differ is not compiled again. A fit by
    minibatches traces `log_likelihood` again, and refuses one that has changed by more than that.

    Memory-mapped arrays, or `RowBlocks`, stay on disk: for minibatch fits of data that do not fit in
    memory. They are not searched for NaN.

    Functions with a further argument, `log_prior(z, h)` and `log_likelihood(z, data, h)`, are those of
    a target with hyperparameters: `fit(..., hyperparameters=h)` fits them beside z.
    """

    log_prior: Callable[..., Float[Array, ""]]
    log_likelihood: Callable[..., Float[Array, " rows"]] | None
    # Arrays, or `AbstractRows` where they stay on disk.
    data: PyTree
    row_numbers: Int[Array, " rows"] | None
    size: int = eqx.field(static=True)
    dim: int | None = eqx.field(static=True)
    unravel: Callable[[Float[Array, " dim"]], PyTree] | None = eqx.field(static=True)
    model: AbstractNamedModel | None
    # Which of the two functions take hyperparameters, and how many of the last coordinates of a point
    # are such: `fit` makes targets that have some.
    takes_hyperparameters: tuple[bool, bool] = eqx.field(static=True)
    hyperparameter_count: int = eqx.field(static=True)
    # Hyperparameters that the model itself has, and where they start, if it has any.
    parameters: AbstractParameters | None
    # The devices that share out the work, if several do: see `sharding`.
    mesh: Mesh | None = eqx.field(static=True)
    # Why a program's data are no rows, and what to do, for whoever asks for minibatches of them.
    no_rows: str = eqx.field(static=True)

    def __init__(
        self,
        log_prior: Callable[..., Any],
        log_likelihood: Callable[..., Any] | None = None,
        data: PyTree = None,
        size: int | None = None,
        *,
        dim: int | None = None,
        example: PyTree = None,
        model: AbstractNamedModel | None = None,
        hyperparameter_count: int = 0,
        parameters: AbstractParameters | None = None,
        no_rows: str = "",
    ):
        check_arguments(log_prior, log_likelihood, data, dim, example)
        self.unravel = None
        if example is not None:
            flat, self.unravel = ravel_pytree(example)
            dim = flat.size
        self.dim = None if dim is None else whole(dim, "dim", least=1)
        self.log_prior = log_prior
        self.log_likelihood = log_likelihood
        on_disk = mapped(data)
        self.data = as_data(data) if on_disk is None else on_disk
        self.model, self.row_numbers, self.mesh, self.no_rows = model, None, None, no_rows
        rows = rows_of(self.data)
        self.size = rows if size is None else whole(size, "size", least=max(rows, 1))
        self.hyperparameter_count = hyperparameter_count
        self.parameters = parameters
        self.takes_hyperparameters = takes_more(log_prior, 1), takes_more(log_likelihood, 2)
        if self.dim is not None and not any(self.takes_hyperparameters):
            self.log_prior, self.log_likelihood = self._traced(self.dim)
        if model is not None:
            assert self.dim is not None
            self.model = read_model(model, self._shapes(self.dim))

    def _traced(self, dim: int) -> tuple[Traced, Traced | None]:
        """The functions as they are now, checked at points of length `dim`."""
        seen = self.on_rows(np.arange(min(2, self.rows))) if self.on_disk else self
        point = self._shapes(dim)
        if self.log_likelihood is None:
            return traced_function("the log density", self.log_prior, (point,), dim, ()), None
        prior = traced_function("log_prior", self.log_prior, (point,), dim, ())
        args = point, jax.eval_shape(lambda: seen.data)
        return prior, traced_function("log_likelihood", self.log_likelihood, args, dim, (seen.rows,))

    def _shapes(self, dim: int) -> PyTree:
        """A point in the form that `log_prior` takes, without numbers."""
        return jax.eval_shape(self.point, jax.ShapeDtypeStruct((dim,), jnp.zeros(()).dtype))

    @classmethod
    def from_logdensity(
        cls, fn: Callable[..., Any], dim: int | None = None, *, example: PyTree = None
    ) -> "Target":
        """Make a target from an unnormalised log density of one point."""
        if dim is None and example is None:
            raise ValueError(
                "say how long a point is: dim=5 for vectors, or example=pytree for pytrees like it"
            )
        if isinstance(dim, dict | list | tuple):
            raise TypeError(f"dim must be a number; got a {type(dim).__name__}. Pytrees are example=...")
        return cls(fn, dim=dim, example=example)

    @classmethod
    def from_numpyro(cls, model: Callable[..., Any], *args: Any, **kwargs: Any) -> "Target":
        """Make a target from a NumPyro model and the arguments that it is called with.

        Points are dicts of its latent sites on NumPyro's unconstrained scale. Arrays among the arguments
        are data: the same model with other numbers of the same shapes is not compiled again. Rows for
        minibatches come from the plate that the model subsamples, or else from its only plate or vector
        of observations, if a row's likelihood needs no other row.
        """
        return adapter("numpyro").target_of(model, *args, **kwargs)

    @classmethod
    def from_pymc(cls, model: Any) -> "Target":
        """Make a target from a PyMC model, on PyMC's unconstrained scale, through its JAX back end."""
        return adapter("pymc").target_of(model)

    def log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """f(z), with the rows at hand scaled up to `size`."""
        point = self.point(z)
        log_prior = self.log_prior(point)
        if self.log_likelihood is None:
            return log_prior
        return log_prior + self.scale * jnp.sum(self.log_likelihood(point, self._at_hand()))

    def log_likelihoods(self, z: Float[Array, " dim"]) -> Float[Array, " rows"]:
        """log p(x_i | z) for each row at hand, unscaled."""
        if self.log_likelihood is None:
            raise ValueError("this target has no data, so there is no likelihood of its rows")
        return self.log_likelihood(self.point(z), self._at_hand())

    @property
    def on_disk(self) -> bool:
        """Whether the rows are read from where they are, a few at a time."""
        return isinstance(self.data, AbstractRows)

    def _at_hand(self) -> PyTree[Array]:
        if isinstance(self.data, AbstractRows):
            raise ValueError(
                f"this needs all rows in memory, but the {self.rows:,} rows of the target stay on disk; "
                "target.on_rows(numbers) is the same target with some of them at hand"
            )
        return self.data

    def point(self, z: Float[Array, " dim"]) -> PyTree:
        """The flat vector `z` in the form that `log_prior` takes."""
        return z if self.unravel is None else self.unravel(z)

    def constrain(self, z: Float[Array, " dim"]) -> PyTree:
        """The point in the names and on the scale of the model it came from, if it came from one."""
        return self.point(z) if self.model is None else self.model.constrain(self.point(z))

    @property
    def rows(self) -> int:
        """B, the number of rows at hand."""
        return rows_of(self.data)

    @property
    def scale(self) -> float:
        """N / B."""
        return self.size / self.rows

    def batch(self, indices: Int[Array, " batch"]) -> "Target":
        """The same target seen through some of its rows (jit-able; `size` stays N).

        Its `row_numbers` are those of the whole target, also for a batch of a batch; None stands for
        all rows in order.
        """
        data = jax.tree.map(lambda x: x[indices], self._at_hand())
        numbers = indices if self.row_numbers is None else self.row_numbers[indices]
        return _replaced(self, data=data, row_numbers=numbers)

    def on_rows(self, rows: Int[np.ndarray, " batch"]) -> "Target":
        """`batch` on the host, without compiling anything."""
        if isinstance(self.data, AbstractRows):
            data = jax.tree.map(on_device, self.data.take(rows))
        else:
            data = jax.tree.map(lambda x: on_device(np.asarray(x)[rows]), self.data)
        numbers = rows if self.row_numbers is None else np.asarray(self.row_numbers)[rows]
        return _replaced(self, data=data, row_numbers=on_device(numbers, np.int32))

    def sample_rows(self, count: int, rng: np.random.Generator) -> Int[np.ndarray, " some"]:
        """Sorted numbers of at most `count` rows, drawn at random."""
        if isinstance(self.data, AbstractRows):
            return self.data.sample(count, rng)
        return np.sort(rng.permutation(self.rows)[:count])

    def with_data(self, data: PyTree) -> "Target":
        """The same model with other data: arrays like those it has, of any number of rows.

        `size` becomes the number of rows, unless it was given.
        """
        if self.log_likelihood is None:
            raise ValueError("this target has no data that others could take the place of")
        new = data_like(self._at_hand(), data)
        size = rows_of(new) if self.size == self.rows else self.size
        return _replaced(self, data=new, row_numbers=None, size=size)

    def without_rows(self) -> "Target":
        """The log prior alone."""
        return _replaced(self, data=None, log_likelihood=None, row_numbers=None)

    def with_mesh(self, mesh: Mesh | None) -> "Target":
        """The same target, with these devices to share out the work; rows stay where they are."""
        return _replaced(self, mesh=mesh)

    def check_batch_size(self, batch_size: int) -> int:
        """`batch_size` as an int, or a `ValueError` unless it is between 1 and the rows at hand."""
        return batch_size_within(self.rows, batch_size, self.no_rows)

    def check_dim(self, dim: int) -> None:
        """Raise a `ValueError` unless `dim` is the length of a point, as far as it is known."""
        if self.dim is not None and dim != self.dim:
            raise ValueError(
                f"the target has dim {self.dim} but the variational family has dim {dim}; "
                f"make the family with dim={self.dim}"
            )

    def check(self, dim: int) -> None:
        """Raise unless points of length `dim` give a real scalar and one likelihood per row."""
        self.of_dim(dim)

    def of_dim(self, dim: int) -> "Target":
        """The target with points of length `dim`, checked; its functions as they are now, if no earlier.

        A target that knew its dim when it was made has read them then.
        """
        self.check_dim(dim)
        if any(self.takes_hyperparameters):
            raise ValueError(HYPERPARAMETERS_MISSING)
        if self.dim is not None:
            return self
        prior, likelihood = self._traced(dim)
        return _replaced(self, dim=dim, log_prior=prior, log_likelihood=likelihood)


def _replaced(target: Target, **changes: Any) -> Target:
    """The target with other fields, static ones too, without another look at its functions."""
    made = object.__new__(Target)
    for field in dataclasses.fields(target):
        value = changes.get(field.name, getattr(target, field.name))
        object.__setattr__(made, field.name, value)
    return made


def as_data(data: PyTree) -> PyTree[Array]:
    """The data as arrays on the device; raises where rows do not match or are not finite."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    rows = {jax.tree_util.keystr(path) or "data": np.shape(x)[:1] for path, x in leaves}
    if len(set(rows.values())) > 1 or () in rows.values() or (0,) in rows.values():
        raise ValueError(f"every array in data needs the same, non-empty leading axis; got {rows}")
    for path, leaf in leaves:
        values = np.asarray(leaf)
        bad = ~np.isfinite(values) if np.issubdtype(values.dtype, np.floating) else np.zeros(1, bool)
        if bad.any():
            name = jax.tree_util.keystr(path) or "data"
            row = int(np.argwhere(bad)[0][0])
            raise ValueError(
                f"{name} has {int(bad.sum())} NaN or infinite values, the first in row {row}; "
                "remove or impute these rows"
            )
    # NumPy's arrays are copied at once, on the host: jax may share their memory, or copy them a little
    # later, and they may be changed in place.
    return jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jnp.asarray(np.array(x)), data)


def data_like(known: PyTree[Array], data: PyTree) -> PyTree[Array]:
    """`as_data`, for data whose rows must be like those that are known."""
    new = as_data(data)
    here, there = (jax.tree.map(lambda x: (x.shape[1:], x.dtype), d) for d in (known, new))
    if jax.tree.structure(known) != jax.tree.structure(new) or here != there:
        raise ValueError(f"data must be like that of the target, with rows of {here}; got {there}")
    return new


def rows_of(data: PyTree[Array] | AbstractRows) -> int:
    """The length of the common leading axis; 0 without data."""
    if isinstance(data, AbstractRows):
        return data.rows
    leaves = jax.tree.leaves(data)
    return leaves[0].shape[0] if leaves else 0


def log_density_in_blocks(target: Target, z: Float[Array, " dim"], rows: int) -> Float[Array, ""]:
    """`target.log_density(z)`, with at most `rows` rows of data worked on at once."""
    if target.rows <= rows:
        return target.log_density(z)

    def total(start: Int[Array, ""], count: int) -> Float[Array, ""]:
        return jnp.sum(target.batch(start + jnp.arange(count)).log_likelihoods(z))

    blocks, rest = divmod(target.rows, rows)
    sums = jax.lax.map(lambda start: total(start, rows), rows * jnp.arange(blocks))
    log_lik = jnp.sum(sums)
    if rest:
        log_lik += total(jnp.asarray(rows * blocks), rest)
    return target.log_prior(target.point(z)) + target.scale * log_lik


def coordinate_name(target: Target, index: int) -> str:
    """Coordinate 3, or its place in the target's own points: coordinate weights[1, 0].

    Points are flattened leaf by leaf, so that shapes tell the place and nothing is compiled.
    """
    if target.unravel is None or target.dim is None:
        return f"coordinate {index}"
    flat = jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype)
    first = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.eval_shape(target.unravel, flat)):
        if index < first + leaf.size:
            place = np.unravel_index(index - first, leaf.shape)
            inside = f"[{', '.join(map(str, place))}]" if place else ""
            return f"coordinate {jax.tree_util.keystr(path, simple=True, separator='.')}{inside}"
        first += leaf.size
    return f"coordinate {index}"
