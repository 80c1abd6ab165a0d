"""What the tests run on: small targets with arrays for parameters, and families off their start.

The targets are one module with different numbers in it, so one compiled function serves them all.
"""

import functools
import inspect
import math
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from quietgrad import families
from quietgrad.families import bases
from quietgrad.targets import Target

# They differ by their layers alone: where no layer is looked at, one in turn stands for all.
FLOWS = [name for name, made in families.REGISTRY.items() if issubclass(made, families.AbstractFlow)]
# Families whose log q is exact: quadrature and pointwise identities are for these.
EXACT = [
    name for name, made in families.REGISTRY.items() if not issubclass(made, families.EstimatesDensity)
]


def _kind(made: type[families.AbstractFamily]) -> Any:
    """Families of one kind differ in what no estimator sees: one of them in turn stands for all."""
    if issubclass(made, families.AbstractFlow):
        return families.AbstractFlow
    if issubclass(made, families.AbstractStructured):
        return families.AbstractStructured
    return made if issubclass(made, families.HasMoments) else families.AbstractFamily


# The families of the same kind, by name.
ALIKE = {
    name: [other for other in EXACT if _kind(families.REGISTRY[other]) is _kind(families.REGISTRY[name])]
    for name in EXACT
}


def in_turn(number: int = 0) -> list[Any]:
    """Parameters: one family of each kind, the `number`-th, is for every run; the others are slow."""
    turns = {kind: alike.index(kind) == number % len(alike) for kind, alike in ALIKE.items()}
    return [pytest.param(kind, marks=() if turn else pytest.mark.slow) for kind, turn in turns.items()]


SEED = 20240229
# Programs that were compiled in this process so far.
PROGRAMS = [0]


def _heard(event: str, seconds: float, **more: Any) -> None:
    del seconds, more
    PROGRAMS[0] += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(_heard)


def key_of(name: str) -> Array:
    """The key that belongs to `name`."""
    return jr.fold_in(jr.key(SEED), zlib.crc32(name.encode()))


class Posterior(eqx.Module):
    """A 2-D density: a quadratic, a ridge along z_2 = sin(1.5 z_1) of height `ridge`, and a logit.

    Tails are quadratic whatever the numbers, so gradients have variance under heavy-tailed bases too.
    """

    loc: Float[Array, "2"]
    precision: Float[Array, "2 2"]
    ridge: Float[Array, ""]

    def log_prior(self, z: Float[Array, "2"]) -> Float[Array, ""]:
        """The quadratic and the ridge."""
        gap = z - self.loc
        return -0.5 * gap @ self.precision @ gap - 0.5 * self.ridge * (z[1] - jnp.sin(1.5 * z[0])) ** 2

    def log_likelihood(self, z: Float[Array, "2"], data: tuple[Array, Array]) -> Float[Array, " rows"]:
        """Bernoulli outcomes with logit x'z."""
        x, y = data
        logit = x @ z
        return y * logit - jnp.logaddexp(logit, 0.0)


def _posterior(*, ridge: float, slopes: float, dtype: Any) -> Target:
    x = slopes * jnp.array([[1.0, 2.0], [-1.5, 0.5], [0.3, -2.0], [2.0, 1.0], [-0.5, 1.5]])
    model = Posterior(
        jnp.array([0.4, -0.3]), jnp.array([[1.5, 0.6], [0.6, 0.9]]), jnp.asarray(ridge, x.dtype)
    )
    y = jnp.array([1.0, 0.0, 1.0, 1.0, 0.0])
    model, data = cast((model, (x, y)), dtype)
    return Target(model.log_prior, model.log_likelihood, data, dim=2)


TARGETS = {
    "gaussian": {"ridge": 0.0, "slopes": 0.0},
    "curved": {"ridge": 2.0, "slopes": 1.0},
}


@functools.cache
def target_2d(name: str, dtype: Any = jnp.float64) -> Target:
    """One of `TARGETS`; "gaussian" is the only one with a quadratic log density."""
    return _posterior(**TARGETS[name], dtype=dtype)


def cast(tree: Any, dtype: Any) -> Any:
    """The tree with its floating-point arrays in `dtype`."""

    def each(x: Any) -> Any:
        return x.astype(dtype) if eqx.is_inexact_array(x) and x.dtype != dtype else x

    return jax.tree.map(each, tree)


def accepted(make: Any, **settings: Any) -> dict[str, Any]:
    """Those of `settings` that `make` has parameters for."""
    parameters = inspect.signature(make).parameters
    return {name: value for name, value in settings.items() if name in parameters}


@functools.cache
def family(
    name: str, dim: int, base: str | None = None, *, small: bool = False, dtype: Any = jnp.float64
) -> families.AbstractFamily:
    """A registered family away from its start, so that no parameter is zero.

    `small` asks for one factor and narrow networks, where there are any, which makes quadrature over
    the base draws affordable. Two couplings move every coordinate; more would only compile longer. Moves
    shrink with dim: a random triangular matrix is otherwise too ill-conditioned to be undone.
    """
    make = families.REGISTRY[name].init
    chosen = {} if base is None else {"base": bases.REGISTRY[base]()}
    few = accepted(make, couplings=2, depth=2)
    few |= accepted(make, rank=1, widths=(3,), hidden=3) if small else {}
    q = make(dim, key=key_of(f"{name}-{dim}"), **few, **chosen)
    # numpy, because jax would compile its generator and the sum anew for every shape of parameter.
    noise = np.random.default_rng(zlib.crc32(f"{name}-{dim}".encode()))
    params, static = eqx.partition(q, eqx.is_inexact_array)

    def away(x: Array) -> Array:
        return jax.device_put(np.asarray(x) + 0.4 / math.sqrt(dim) * noise.normal(size=x.shape))

    moved = jax.tree.map(away, params)
    return cast(eqx.combine(moved, static), dtype)


def other_bases(name: str) -> list[str]:
    """The registered bases that the family can stand on, apart from its own choice."""
    own = inspect.signature(families.REGISTRY[name].init).parameters.get("base")
    return [] if own is None else [b for b, c in bases.REGISTRY.items() if type(own.default) is not c]
