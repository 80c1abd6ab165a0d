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
    """A function of (z, h) and data at an h that is known."""

    function: Callable[..., Array]
    h: PyTree

    def __call__(self, z: PyTree, *data: PyTree) -> Array:
        return self.function(PointWith(z, self.h), *data)


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


def fixed_at(target: Target, beside: Target, hyperparameters: PyTree) -> Target:
    """The target given these hyperparameters, a density of z alone.

    `beside` is what `fitted_beside` made of it: its functions are as they were then.
    """
    arrays, _ = eqx.partition(hyperparameters, eqx.is_inexact_array)
    functions = beside.log_prior, beside.log_likelihood
    prior, likelihood = (None if f is None else _Fixed(f, arrays) for f in functions)
    assert prior is not None
    assert beside.dim is not None
    dim = beside.dim - sum(leaf.size for leaf in jax.tree.leaves(arrays))
    example = _example(target, None)
    size = target.size if target.rows else None
    made = Target(
        prior,
        likelihood,
        target.data,
        size,
        dim=dim if example is None else None,
        example=example,
        model=target.model,
    )
    return made.with_mesh(target.mesh)


def given(target: Target, hyperparameters: PyTree, q: Any) -> Target:
    """The target at hyperparameters that were fitted before, with q; itself if it takes none."""
    if not any(target.takes_hyperparameters):
        return target
    if hyperparameters is None:
        raise ValueError(
            "this target takes hyperparameters, which the result was not fitted with; give a target "
            "whose functions do not take them"
        )
    checked_ones = checked(hyperparameters, q.dtype)
    beside = fitted_beside(target, checked_ones, q.dim, q.dtype)
    return fixed_at(target, beside, checked_ones)


def fitted_beside(target: Target, hyperparameters: PyTree, dim: int, dtype: Any) -> Target:
    """The target of points (z, h), for a family with a point mass at h."""
    arrays, rest = eqx.partition(hyperparameters, eqx.is_inexact_array)
    z = jnp.zeros(dim, dtype) if target.unravel is None else _example(target, dtype)
    count = sum(leaf.size for leaf in jax.tree.leaves(arrays))
    functions, takes = (target.log_prior, target.log_likelihood), target.takes_hyperparameters
    if not any(takes):
        raise ValueError(
            "hyperparameters were given, but neither log_prior(z) nor log_likelihood(z, data) has a "
            "further argument for them; write log_prior(z, h), or log_likelihood(z, data, h), or both"
        )
    prior, likelihood = (
        None if f is None else _AtPoint(f, rest, t) for f, t in zip(functions, takes, strict=True)
    )
    assert prior is not None
    made = Target(
        prior,
        likelihood,
        target.data,
        target.size if target.rows else None,
        example=PointWith(z, arrays),
        model=target.model,
        hyperparameter_count=count,
    )
    return made.with_mesh(target.mesh)


def _example(target: Target, dtype: Any) -> PyTree:
    if target.unravel is None or target.dim is None:
        return None
    return target.unravel(jnp.zeros(target.dim, dtype))
