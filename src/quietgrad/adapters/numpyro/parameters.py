"""`numpyro.param` sites as point estimates: hyperparameters of the target, fitted beside q.

A site without a prior has no posterior. Its value, on the unconstrained scale of its constraint and
without a Jacobian, is fitted by maximising the ELBO, as NumPyro's SVI does. The model is wrapped in
`substitute`, whose values are leaves of the call: at other values of the parameters it is the same model
with other leaves.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree
from numpyro.distributions import biject_to, constraints
from numpyro.handlers import seed, substitute, trace

from ...targets import AbstractParameters, Target
from .model import NumpyroModel, Point
from .structure import OpenParameters


class Found(eqx.Module):
    """Open parameters: values at which they start, and constraints."""

    values: dict[str, PyTree]
    constraints: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def free(self) -> dict[str, PyTree]:
        """The values on the unconstrained scale."""
        return self._mapped(self.values, lambda support: biject_to(support).inv)

    def constrained(self, free: dict[str, PyTree]) -> dict[str, PyTree]:
        """Values on their own scale."""
        return self._mapped(free, biject_to)

    def _mapped(self, values: dict[str, PyTree], maps: Callable[[Any], Any]) -> dict[str, PyTree]:
        known = dict(self.constraints)
        return {
            name: value if known[name] is constraints.real else jax.tree.map(maps(known[name]), value)
            for name, value in values.items()
        }


def open_parameters(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
    """The `param` sites that no handler of the model has given a value.

    Runs the model once, as their first values may come from a function.
    """
    watched = OpenParameters(model)
    sites = trace(seed(watched, jr.key(0))).get_trace(*args, **kwargs)
    values = {name: jax.tree.map(_float, sites[name]["value"]) for name in watched.names}
    supports = {name: sites[name]["kwargs"].get("constraint", constraints.real) for name in values}
    whole = [
        name
        for name, value in values.items()
        if not all(map(eqx.is_inexact_array, jax.tree.leaves(value)))
    ]
    if whole:
        raise ValueError(
            f"the parameters {', '.join(map(repr, whole))} are whole numbers, which cannot be fitted; "
            "give them values with numpyro.handlers.substitute(model, data={...})"
        )
    return Found(values, tuple(supports.items()))


def _float(value: Any) -> Array:
    """A number as an array; a plain 3.0 is of jax's own floating-point type."""
    value = jnp.asarray(value)
    return value.astype(jnp.zeros(()).dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value


def substituted(model: Any, found: Found) -> Any:
    """The model at the values of its parameters."""
    return substitute(model, data=found.values)


class Parameters(AbstractParameters):
    """The parameters of a model: where they start, and the target at others."""

    made: NumpyroModel
    found: Found

    @property
    def start(self) -> dict[str, PyTree]:
        """On the unconstrained scale."""
        return self.found.free()

    def values(self, h: dict[str, PyTree]) -> dict[str, PyTree]:
        """On the model's own scale."""
        return self.found.constrained(h)

    def at(self, target: Target, h: dict[str, PyTree]) -> Target:
        """The target with the parameters held fixed: a model like any other."""
        model, size = self.model_at(h), target.size if target.rows else None
        likelihood = None if target.log_likelihood is None else model.log_likelihood
        made = Target(
            model.log_prior,
            likelihood,
            target.data,
            size,
            example=model.origin(),
            model=model,
            no_rows=target.no_rows,
        )
        return made.with_mesh(target.mesh)

    def log_prior(self, point: Point, h: dict[str, PyTree]) -> Float[Array, ""]:
        """All of the log density but the rows, at these parameters."""
        return self.model_at(h).log_prior(point)

    def log_likelihood(
        self, point: Point, data: PyTree[Array], h: dict[str, PyTree]
    ) -> Float[Array, " rows"]:
        """That of the rows."""
        return self.model_at(h).log_likelihood(point, data)

    def model_at(self, h: dict[str, PyTree]) -> NumpyroModel:
        """The model with the leaves of `substitute` replaced."""
        leaves = list(self.made.leaves)
        places = _places(self.made)
        for name, value in self.found.constrained(h).items():
            for place, leaf in zip(places[name], jax.tree.leaves(value), strict=True):
                leaves[place] = leaf
        return dataclasses.replace(self.made, leaves=tuple(leaves))


def _places(made: NumpyroModel) -> dict[str, list[int]]:
    """The numbers of the leaves of each parameter: the call's first part is the `substitute` handler."""
    call = jax.tree.unflatten(made.form, range(len(made.leaves)))
    return {name: jax.tree.leaves(value) for name, value in call[0].held["data"].items()}
