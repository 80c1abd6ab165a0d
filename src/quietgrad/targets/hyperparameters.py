"""Targets with hyperparameters: functions that take a further argument h, fitted beside z or held fixed.

h is any pytree. Its real floating-point arrays are fitted; everything else in it stays as it is, so that
an equinox module is as good as a dict of arrays. A function takes h if it has a further argument
without a default.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .target import Target


class PointWith(NamedTuple):
    """A point in its own form, and the arrays of the hyperparameters."""

    z: PyTree
    h: PyTree


class _AtPoint(eqx.Module):
    """A function of (z, h) and data; `rest` is what of h is not fitted."""

    function: Callable[..., Array]
    rest: PyTree
    takes: bool = eqx.field(static=True)

    def __call__(self, point: PointWith, *data: PyTree) -> Array:
        if not self.takes:
            return self.function(point.z, *data)
        return self.function(point.z, *data, eqx.combine(point.h, self.rest))


class _Fixed(eqx.Module):
    """A function of (z, *data) at hyperparameters that are known."""

    function: Callable[..., Array]
    hyperparameters: PyTree
    takes: bool = eqx.field(static=True)

    def __call__(self, z: PyTree, *data: PyTree) -> Array:
        return self.function(z, *data, *((self.hyperparameters,) if self.takes else ()))


def checked(hyperparameters: PyTree, dtype: Any) -> PyTree:
    """The hyperparameters with their arrays in the precision of the fit, if there is anything to fit."""
    arrays, rest = eqx.partition(hyperparameters, eqx.is_inexact_array)
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ValueError(
            "hyperparameters has no floating-point arrays, so there is nothing to fit; numbers that are "
            "not arrays are left alone: write jnp.array(0.0), not 0.0"
        )
    if any(jnp.iscomplexobj(leaf) for leaf in leaves):
        raise ValueError("hyperparameters must be real; give the real and the imaginary part of each")
    return eqx.combine(jax.tree.map(lambda x: jnp.asarray(x, dtype), arrays), rest)


def fixed_at(target: Target, hyperparameters: PyTree) -> Target:
    """The target given these hyperparameters: a density of z alone."""
    return _made(
        target,
        lambda function, takes: _Fixed(function, hyperparameters, takes),
        dim=target.dim if target.unravel is None else None,
        example=_example(target, None),
    )


def fitted_beside(target: Target, hyperparameters: PyTree, dim: int, dtype: Any) -> Target:
    """The target of points (z, h), for a family with a point mass at h."""
    arrays, rest = eqx.partition(hyperparameters, eqx.is_inexact_array)
    z = jnp.zeros(dim, dtype) if target.unravel is None else _example(target, dtype)
    count = sum(leaf.size for leaf in jax.tree.leaves(arrays))
    return _made(
        target,
        lambda function, takes: _AtPoint(function, rest, takes),
        example=PointWith(z, arrays),
        hyperparameter_count=count,
    )


def _example(target: Target, dtype: Any) -> PyTree:
    if target.unravel is None or target.dim is None:
        return None
    return target.unravel(jnp.zeros(target.dim, dtype))


def _made(target: Target, wrap: Callable[[Any, bool], Any], **form: Any) -> Target:
    """A target of wrapped functions."""
    functions, takes = (target.log_prior, target.log_likelihood), target.takes_hyperparameters
    if not any(takes):
        raise ValueError(
            "hyperparameters were given, but neither log_prior(z) nor log_likelihood(z, data) has a "
            "further argument for them; write log_prior(z, h), or log_likelihood(z, data, h), or both"
        )
    prior, likelihood = (
        None if f is None else wrap(f, t) for f, t in zip(functions, takes, strict=True)
    )
    assert prior is not None
    size = target.size if target.rows else None
    made = Target(prior, likelihood, target.data, size, model=target.model, **form)
    return made.with_mesh(target.mesh)
