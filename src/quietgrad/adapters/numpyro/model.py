"""A NumPyro model as a target: NumPyro's own density on its unconstrained scale, split into rows.

Points are dicts of latent sites. The log density is minus `numpyro.infer.util.potential_energy`.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree
from numpyro.handlers import seed, substitute, trace, uncondition
from numpyro.infer import Predictive
from numpyro.infer.util import (
    _unconstrain_reparam,
    compute_log_probs,
    constrain_fn,
    potential_energy,
    unconstrain_fn,
)

from ..._extras import needs_extra
from ...targets import AbstractNamedModel
from .handled import put_together
from .rows import Rows
from .structure import Given, Site, Structure

Point = dict[str, Float[Array, "..."] | Float[np.ndarray, "..."]]


class NumpyroModel(AbstractNamedModel):
    """A model with its arguments, as leaves: tuples can be hashed, and a call may hold dicts.

    `taken` says how many rows a plate gets that the model subsamples.
    """

    leaves: tuple[Any, ...]
    form: Any = eqx.field(static=True)
    structure: Structure = eqx.field(static=True)
    taken: tuple[tuple[str, int], ...] = eqx.field(static=True)
    rows: Rows | None = eqx.field(static=True, default=None)

    def log_prior(self, point: Point) -> Float[Array, ""]:
        """All of the log density but the rows."""
        if self.structure.enumerated:
            return self._summed_out(point)
        rows = () if self.rows is None else dict(self.rows.axes)
        log_probs, _ = self._run(point, self.leaves, {})
        parts = [jnp.sum(value) for name, value in log_probs.items() if name not in rows]
        return sum(parts, start=jnp.zeros(()))

    def log_likelihood(self, point: Point, data: PyTree[Array]) -> Float[Array, " rows"]:
        """The sites in rows, summed over their other axes and without the plate's scale N / B."""
        assert self.rows is not None
        leaves, count = list(self.leaves), jax.tree.leaves(data)[0].shape[0]
        given = {}
        if self.rows.leaves is not None:
            for index, value in zip(self.rows.leaves, data, strict=True):
                leaves[index] = value
            data = jnp.arange(count)
        if self.rows.plate is not None:
            given[self.rows.plate] = data
        log_probs, sites = self._run(point, leaves, given)
        total = jnp.zeros(count)
        for name, axis in self.rows.axes:
            value = log_probs[name]
            total += jnp.sum(jnp.moveaxis(value, axis, 0).reshape(value.shape[axis], -1), axis=1)
        if self.rows.plate is None:
            return total
        return total * count / sites[self.rows.plate]["args"][0]

    def constrain(self, point: Point) -> dict[str, Array]:
        """Latent sites on their own scale, and the deterministic ones."""
        model, args, kwargs = self._call(self.leaves)
        model = Given(model, self._plates({}))
        if self.structure.enumerated:
            model = seed(model, jax.random.key(0))
        return constrain_fn(model, args, kwargs, point, return_deterministic=True)

    def variables(self) -> tuple[str, ...]:
        """The latent sites."""
        return tuple(site.name for site in self.structure.latent)

    def unconstrain(self, values: dict[str, Array]) -> Point:
        """By NumPyro's own transforms, which may depend on the values of other sites."""
        model, args, kwargs = self._call(self.leaves)
        # The key is for sites that are summed out elsewhere.
        model = seed(Given(model, self._plates({})), jax.random.key(0))
        return unconstrain_fn(model, args, kwargs, {name: values[name] for name in self.variables()})

    def log_likelihoods(self, point: Point) -> dict[str, Array]:
        """Of every observed site, without the scale of a plate; none where sites are summed out."""
        if self.structure.enumerated:
            return {}
        log_probs, _ = self._run(point, self.leaves, {})
        plates = dict(self.structure.plates)
        scales = {
            site.name: math.prod(plates[name].size / plates[name].taken for name, _ in site.plates)
            for site in self.structure.observed
        }
        return {name: log_probs[name] / scale for name, scale in scales.items()}

    def observed(self) -> dict[str, Any]:
        """The values of the observed sites."""
        return _observed_values(self)

    def origin(self) -> Point:
        """The point of zeros."""
        dtype = jnp.zeros(()).dtype
        return {site.name: np.zeros(site.free, dtype) for site in self.structure.latent}

    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """Plates name the axes."""
        structure = self.structure
        sizes = {name: plate.taken for name, plate in structure.plates}
        named = (*structure.latent, *structure.observed, *structure.deterministic)
        return {site.name: _dims(site, sizes) for site in named}

    def coords(self) -> Mapping[str, Any]:
        """Rows of the plates by number."""
        return {name: np.arange(plate.taken) for name, plate in self.structure.plates}

    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """What `numpyro.infer.Predictive` gives when nothing is observed."""
        model, own_args, own_kwargs = self._call(self.leaves)
        if not args and not kwargs:
            model, args, kwargs = Given(model, self._plates({})), own_args, own_kwargs
        drawn = Predictive(uncondition(model), dict(draws))(key, *args, **kwargs)
        factors = [site.name for site in self.structure.factors]
        return {name: value for name, value in drawn.items() if name not in factors}

    def _call(self, leaves: Sequence[Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        return put_together(jax.tree.unflatten(self.form, leaves))

    def _run(
        self, point: Point, leaves: Sequence[Any], given: dict[str, Array]
    ) -> tuple[dict[str, Array], Any]:
        model, args, kwargs = self._call(leaves)
        model = Given(model, self._plates(given))
        free = functools.partial(_unconstrain_reparam, point)
        return compute_log_probs(
            substitute(model, substitute_fn=free), args, kwargs, {}, sum_log_prob=False
        )

    def _summed_out(self, point: Point) -> Float[Array, ""]:
        with needs_extra("numpyro", "a model with discrete sites"):
            from numpyro.contrib.funsor import config_enumerate, enum
        model, args, kwargs = self._call(self.leaves)
        model = config_enumerate(Given(model, self._plates({})))
        enumerated = enum(model, -self.structure.nesting - 1)
        return -jnp.asarray(potential_energy(enumerated, args, kwargs, point, enum=True))

    def _plates(self, given: dict[str, Array]) -> dict[str, Array]:
        return {name: jnp.arange(count) for name, count in self.taken} | given


@eqx.filter_jit
def _observed_values(model: NumpyroModel) -> dict[str, Array]:
    """From a run at the origin, with a key for sites that are summed out elsewhere."""
    fn, args, kwargs = model._call(model.leaves)
    seeded = seed(Given(fn, model._plates({})), jax.random.key(0))
    free = functools.partial(_unconstrain_reparam, jax.tree.map(jnp.asarray, model.origin()))
    sites = trace(substitute(seeded, substitute_fn=free)).get_trace(*args, **kwargs)
    return {site.name: jnp.asarray(sites[site.name]["value"]) for site in model.structure.observed}


def _dims(site: Site, sizes: Mapping[str, int]) -> list[str | None]:
    shape = (*site.batch, *site.event)
    names: list[str | None] = [None] * len(shape)
    for name, dim in site.plates:
        axis = len(site.batch) + dim
        # A deterministic site may have axes of its own to the right of its plates.
        if axis >= 0 and shape[axis] == sizes[name]:
            names[axis] = name
    return names
