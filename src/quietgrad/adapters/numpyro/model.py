"""A NumPyro model as a target: NumPyro's own density on its unconstrained scale, split into rows.

Points are dicts of latent sites. The log density is minus `numpyro.infer.util.potential_energy`.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
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

from ..._util.extras import needs_extra
from ...targets import AbstractNamedModel
from .handled import put_together
from .rows import Rows
from .structure import Given, Site, Structure

Point = dict[str, Float[Array, "..."] | Float[np.ndarray, "..."]]


class NumpyroModel(AbstractNamedModel):
    """A model with its arguments, as leaves: those of other rows can take their places.

    `taken` says how many rows a plate gets that the model subsamples.
    """

    leaves: tuple[Any, ...]
    form: Any = eqx.field(static=True)
    structure: Structure = eqx.field(static=True)
    taken: tuple[tuple[str, int], ...] = eqx.field(static=True)
    rows: Rows | None = eqx.field(static=True, default=None)

    def log_prior(self, point: Point) -> Float[Array, ""]:
        """All of the log density but the rows."""
        return unvalidated(self._log_prior, point)

    def _log_prior(self, point: Point) -> Float[Array, ""]:
        if self.structure.enumerated:
            return self._summed_out(point)
        rows = () if self.rows is None else dict(self.rows.axes)
        log_probs, _ = self._run(point, self.leaves, {})
        parts = [jnp.sum(value) for name, value in log_probs.items() if name not in rows]
        return sum(parts, start=jnp.zeros(()))

    def log_likelihood(self, point: Point, data: PyTree[Array]) -> Float[Array, " rows"]:
        """The sites in rows, summed over their other axes and without the plate's scale N / B."""
        return unvalidated(lambda point: self._log_likelihood(point, data), point)

    def _log_likelihood(self, point: Point, data: PyTree[Array]) -> Float[Array, " rows"]:
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
        return unvalidated(
            lambda point: constrain_fn(model, args, kwargs, point, return_deterministic=True), point
        )

    def all_at(self, point: Point) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
        """From one run of the model, unless sites are summed out."""
        if self.structure.enumerated:
            return super().all_at(point)
        log_probs, sites = self._run(point, self.leaves, {})
        named = [site.name for site in (*self.structure.latent, *self.structure.deterministic)]
        seen = [site.name for site in self.structure.observed]
        values = {name: jnp.asarray(sites[name]["value"]) for name in sites if name in {*named, *seen}}
        constrained = {name: value for name, value in values.items() if name in named}
        return constrained, self._unscaled(log_probs), {name: values[name] for name in seen}

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
        return self._unscaled(unvalidated(lambda point: self._run(point, self.leaves, {})[0], point))

    def _unscaled(self, log_probs: Mapping[str, Array]) -> dict[str, Array]:
        # A plate inside a scan is not in the list, and has all its rows.
        parts = {name: plate.size / plate.taken for name, plate in self.structure.plates}
        scales = {
            site.name: math.prod(parts.get(name, 1.0) for name, _ in site.plates)
            for site in self.structure.observed
        }
        return {name: log_probs[name] / scale for name, scale in scales.items()}

    def observed(self) -> dict[str, Any]:
        """The values of the observed sites."""
        # From a run at the origin, with a key for sites that are summed out elsewhere.
        model, args, kwargs = self._call(self.leaves)
        seeded = seed(Given(model, self._plates({})), jax.random.key(0))
        free = functools.partial(_unconstrain_reparam, jax.tree.map(jnp.asarray, self.origin()))
        sites = trace(substitute(seeded, substitute_fn=free)).get_trace(*args, **kwargs)
        return {site.name: jnp.asarray(sites[site.name]["value"]) for site in self.structure.observed}

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

    def point_dims(self) -> Mapping[str, Sequence[str | None]]:
        """Plates name the first axes of a site, which keep their length on the unconstrained scale."""
        sizes = {name: plate.taken for name, plate in self.structure.plates}
        named = {}
        for site in self.structure.latent:
            axes = _dims(site, sizes)[: len(site.batch)]
            if site.free[: len(axes)] == site.batch:
                named[site.name] = [*axes, *[None] * (len(site.free) - len(axes))]
        return named

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
        drawn = unvalidated(
            lambda draws: Predictive(uncondition(model), draws)(key, *args, **kwargs), dict(draws)
        )
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
            from numpyro.contrib.funsor import config_enumerate, enum, log_density
        model, args, kwargs = self._call(self.leaves)
        model = Given(model, self._plates({}))
        enumerated = enum(config_enumerate(model), -self.structure.nesting - 1)
        try:
            return -jnp.asarray(potential_energy(enumerated, args, kwargs, point, enum=True))
        except AssertionError:
            # NumPyro 0.22 cannot add the Jacobian of a constrained site inside a scan whose discrete
            # sites it sums out. So values come first, with their Jacobians, and the sum afterwards.
            values, log_det = _values(model, args, kwargs, point)
        try:
            return log_density(enumerated, args, kwargs, values)[0] + log_det
        except AssertionError as error:
            names = ", ".join(repr(site.name) for site in self.structure.enumerated)
            raise ValueError(
                f"NumPyro fails to sum out the discrete sites ({names}) of this model; sum them out by "
                "hand, for example with numpyro.distributions.MixtureSameFamily or a forward algorithm "
                "in numpyro.factor, or take continuous sites out of the scan"
            ) from error

    def _plates(self, given: dict[str, Array]) -> dict[str, Array]:
        return {name: jnp.arange(count) for name, count in self.taken} | given


def _values(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], point: Point
) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Latent sites on their own scale, and the log determinant of the map to it."""
    free = substitute(
        seed(model, jax.random.key(0)), substitute_fn=functools.partial(_unconstrain_reparam, point)
    )
    sites = trace(free).get_trace(*args, **kwargs)
    factors = [sites[name] for name in map("_{}_log_det".format, point) if name in sites]
    log_det = sum((jnp.sum(f["fn"].log_prob(f["value"])) for f in factors), start=jnp.zeros(()))
    return {name: sites[name]["value"] for name in point}, log_det


def unvalidated(run: Callable[[Any], Any], point: Any) -> Any:
    """`run(point)` with NumPyro's validation of its numbers left out.

    NumPyro validates numbers that it can see, and raises. A draw of q that makes a parameter invalid, a
    scale negative, say, is a point without a density and no error: inside a program the density is NaN
    there. So points with numbers are run as a batch of one.
    """
    leaves = jax.tree.leaves(point)
    if any(isinstance(x, Tracer) for x in leaves):
        return run(point)
    found = jax.vmap(run)(jax.tree.map(lambda x: jnp.asarray(x)[None], point))
    return jax.tree.map(lambda x: x[0], found)


def _dims(site: Site, sizes: Mapping[str, int]) -> list[str | None]:
    shape = (*site.batch, *site.event)
    names: list[str | None] = [None] * len(shape)
    for name, dim in site.plates:
        axis = len(site.batch) + dim
        # A deterministic site may have axes of its own to the right of its plates.
        if axis >= 0 and shape[axis] == sizes.get(name, shape[axis]):
            names[axis] = name
    return names
