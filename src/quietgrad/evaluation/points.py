"""Points that the host chooses: base draws, and the log density and its gradient at points.

A quasi-Newton method needs some hundred evaluations. Driven from the host they cost a call each, and
the program holds the model once; a line search inside XLA holds it several times and compiles for
seconds. L-BFGS at fixed draws, Newton steps and tests of convergence share this program. Base draws are
made in NumPy, which compiles nothing.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from .._numerics.lapack import over_points
from .._numerics.sobol import MOST_DIMENSIONS, reverse_digits, scramble, sobol_digits
from .._util.compiling import SOONER, jit_options
from ..families.bases import AbstractBase
from ..scale.sharding import put_together, shared_out, shares
from ..targets import Target

# Quantiles that represent each part of a base.
QUANTILES = 64
# Points that are evaluated together, and likelihood values (points x rows) that this may hold. Where
# coordinates are many it is fewer points: a call works on all of them, asked for or not.
AT_ONCE, VALUES = 32, 2**22
COORDINATES, LEAST = 2**20, 4
# Blocks of points that a call has room for, in dimensions up to which room costs nothing.
BLOCKS, SMALL = 4, 2**8
# Rows times coordinates up to which programs compile for longer than they run.
SOON = 2**18
# Columns of a Hessian times rows of data that are worked on at once.
COLUMNS = 2**22
# Places that are looked at, and the nats by which most of them may differ from their neighbours: beyond
# one, a difference of answers says nothing.
PLACES, RESOLVED = 8, 1.0
# Units in the last place between neighbours.
APART = 2.0


def sobol_pairs(
    base: AbstractBase, pairs: int, dim: int, rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """`pairs` quasi-random draws and their mirror images; independent ones beyond Sobol's dimensions."""
    if dim > MOST_DIMENSIONS:
        u = rng.random((pairs, dim))
    else:
        seed = rng.integers(0, 2**32, (1, dim), np.uint32)
        digits = reverse_digits(scramble(_reversed(pairs, dim), seed))
        u = (digits.astype(float) + 0.5) * 2.0**-32
    e = base.host_quantile(u)
    return np.concatenate([e, -e])


@functools.lru_cache(maxsize=8)
def _reversed(pairs: int, dim: int) -> UInt32[np.ndarray, "pairs dim"]:
    """Sobol's points before they are scrambled, the lowest digits first."""
    return reverse_digits(sobol_digits(pairs, dim))


def equal_magnitude_pairs(
    base: AbstractBase, pairs: int, dim: int, rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """Draws for L-BFGS at fixed draws, and their mirror images: every coordinate has the same sizes.

    There are as many sizes as pairs, one for each equally likely part of the base, in random order and
    with random signs. A size is the root mean square of its part, so that every coordinate has the
    variance of the base. What L-BFGS at fixed draws overfits first is a coordinate whose draws happen
    to be small.
    """
    sizes = rng.permuted(np.tile(_sizes(base, pairs), (dim, 1)), axis=1).T
    e = np.where(rng.random((pairs, dim)) < 0.5, -sizes, sizes)
    return np.concatenate([e, -e])


def _sizes(base: AbstractBase, pairs: int) -> Float[np.ndarray, " pairs"]:
    """The root mean square of each of the equally likely parts of one half of the base."""
    u = 0.5 + 0.5 * (np.arange(pairs * QUANTILES) + 0.5) / (pairs * QUANTILES)
    return np.sqrt(np.mean(base.host_quantile(u).reshape(pairs, QUANTILES) ** 2, axis=1))


def iid(
    base: AbstractBase, shape: tuple[int, int], rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """Independent draws of a base."""
    return base.host_quantile((rng.integers(0, 2**32, shape, np.uint32) + 0.5) * 2.0**-32)


class Points:
    """The log density and its gradient as double precision on the host, whatever computes them."""

    def __init__(self, target: Target, dtype: Any, *, at_once: int = AT_ONCE):
        dynamic, static = eqx.partition(target, eqx.is_array)
        leaves, form = jax.tree.flatten(static)
        # A list: jax takes it apart at every call, and is slower with modules.
        self._arrays, shape = jax.tree.flatten(dynamic)
        sooner = target.rows * (target.dim or 1) <= SOON
        self._program, self._hessian = _programs(tuple(leaves), form, shape, sooner=sooner)
        self.dtype = np.dtype(dtype)
        few, devices = max(LEAST, COORDINATES // (target.dim or 1)), shares(target)
        each = min(-(-at_once // devices), few, VALUES // max(1, target.rows))
        self.at_once = devices * max(1, each)
        self._blocks = BLOCKS if (target.dim or SMALL) <= SMALL else 1
        self.gradients = 0

    def __call__(
        self, z: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """log density and gradient at each point."""
        values, slopes = self.as_computed(z)
        return values.astype(float), slopes.astype(float)

    def as_computed(
        self, z: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """The same in the precision of the program, not to be written to."""
        room = self._blocks * self.at_once
        # All calls are under way before the first is waited for.
        calls = [self._call(z[first : first + room]) for first in range(0, len(z), room)]
        self.gradients += len(z)
        parts = [(np.asarray(value), np.asarray(slope)) for value, slope in calls]
        values = [value.reshape(-1) for value, _ in parts]
        slopes = [slope.reshape(-1, z.shape[1]) for _, slope in parts]
        if len(parts) > 1:
            values, slopes = [np.concatenate(values)], [np.concatenate(slopes)]
        return values[0][: len(z)], slopes[0][: len(z)]

    def _call(self, z: Float[np.ndarray, "points dim"]) -> tuple[Array, Array]:
        """The program at as many points as a call has room for, or fewer."""
        count, room, needed = len(z), self._blocks * self.at_once, -(-len(z) // self.at_once)
        if count == room and z.dtype == self.dtype:
            return self._program(
                self._arrays, z.reshape(self._blocks, self.at_once, -1), np.int32(needed)
            )
        block = np.empty((self._blocks, self.at_once, z.shape[1]), self.dtype)
        flat, filled = block.reshape(room, -1), needed * self.at_once
        flat[:count], flat[count:filled] = z, z[-1]
        return self._program(self._arrays, block, np.int32(needed))

    def curvature(
        self, z: Float[np.ndarray, "points dim"], basis: Float[np.ndarray, "dim dim"]
    ) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        """The gradient, and the Hessian in the coordinates of `basis`, B'HB, averaged over the points.

        With a root of the covariance as the basis, the result is near minus one whatever the scales and
        correlations of the coordinates. In single precision their own Hessian would lose the directions
        of little curvature.
        """
        columns = np.ascontiguousarray(basis.T).astype(self.dtype)
        gradient, products = np.zeros(z.shape[1]), np.zeros((z.shape[1], z.shape[1]))
        for first in range(0, len(z), AT_ONCE):
            block = z[first : first + AT_ONCE]
            padded = np.zeros((AT_ONCE, z.shape[1]), self.dtype)
            padded[: len(block)] = block
            some = self._hessian(self._arrays, padded, columns, np.int32(len(block)))
            share = len(block) / len(z)
            gradient += share * np.asarray(some[0], float)
            products += share * np.asarray(some[1], float)
        with np.errstate(invalid="ignore"):
            hessian = products @ columns.astype(float).T
            return gradient, 0.5 * (hessian + hessian.T)

    def products(
        self, z: Float[np.ndarray, " dim"], v: Float[np.ndarray, "vectors dim"]
    ) -> Float[np.ndarray, "vectors dim"]:
        """The Hessian at one point times each of the vectors, by the program of `curvature`."""
        dim, found = z.size, []
        point = np.zeros((AT_ONCE, dim), self.dtype)
        point[0] = z
        for first in range(0, len(v), dim):
            some, columns = v[first : first + dim], np.zeros((dim, dim), self.dtype)
            columns[: len(some)] = some
            made = self._hessian(self._arrays, point, columns, np.int32(1))[1]
            found.append(np.asarray(made, float)[: len(some)])
        return np.concatenate(found)

    def has_gradient(self, dim: int) -> bool:
        """Whether the target can be differentiated by JAX."""
        return self._traces(self._program, (self._blocks, self.at_once, dim), ())

    def has_curvature(self, dim: int) -> bool:
        """Whether it can be differentiated twice."""
        return self._traces(self._hessian, (AT_ONCE, dim), (dim, dim), ())

    def _traces(self, program: Any, *shapes: tuple[int, ...]) -> bool:
        """Whether a program can be made; its numbers without a shape are whole."""
        given = [jax.ShapeDtypeStruct(s, self.dtype if s else np.dtype(np.int32)) for s in shapes]
        try:
            jax.eval_shape(program, self._arrays, *given)
        except (TypeError, ValueError, NotImplementedError):  # what JAX raises where no rule is known
            return False
        return True


@functools.lru_cache(maxsize=64)
def _programs(leaves: tuple[Any, ...], form: Any, shape: Any, *, sooner: bool) -> tuple[Any, Any]:
    """The compiled functions of targets that differ in their arrays only.

    Flat, because a target may hold a dict of data, which has no hash.
    """
    static = jax.tree.unflatten(form, leaves)

    def whole(arrays: list[Array]) -> Target:
        return eqx.combine(jax.tree.unflatten(shape, arrays), static)

    def values(
        arrays: list[Array], z: Float[Array, "blocks points dim"], needed: Int[Array, ""]
    ) -> tuple[Float[Array, "blocks points"], Float[Array, "blocks points dim"]]:
        target = whole(arrays)

        def evaluate(z: Float[Array, "points dim"]) -> tuple[Array, Array]:
            shared = target.mesh is not None
            return over_points(
                jax.value_and_grad(target.log_density), shared_out(target, z), shared=shared
            )

        if z.shape[0] == 1:
            value, slope = put_together(target, evaluate(z[0]))
            return value[None], slope[None]

        def block(i: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
            value, slope = evaluate(z[i])
            return found[0].at[i].set(value), found[1].at[i].set(slope)

        nothing = jnp.zeros(z.shape[:2], z.dtype), jnp.zeros_like(z)
        return put_together(target, jax.lax.fori_loop(0, needed, block, nothing))

    def curvature(
        arrays: list[Array],
        z: Float[Array, "points dim"],
        basis: Float[Array, "dim dim"],
        count: Int[Array, ""],
    ) -> tuple[Array, Array]:
        target, dim = whole(arrays), z.shape[1]
        columns, devices = max(1, min(dim, COLUMNS // max(1, target.rows))), shares(target)

        def at(point: Float[Array, " dim"]) -> tuple[Array, Array]:
            gradient, push = jax.linearize(jax.grad(target.log_density), point)
            return gradient, jax.lax.map(push, basis, batch_size=columns)

        def add(i: Int[Array, ""], sums: tuple[Array, Array]) -> tuple[Array, Array]:
            return jax.tree.map(jnp.add, sums, at(z[i]))

        def add_some(i: Int[Array, ""], sums: tuple[Array, Array]) -> tuple[Array, Array]:
            """A point for each device."""
            numbers = devices * i + jnp.arange(devices)
            gradient, hessian = jax.vmap(at)(shared_out(target, z[numbers]))
            counts = (numbers < count)[:, None]
            gradient = jnp.sum(jnp.where(counts, gradient, 0), axis=0)
            hessian = jnp.sum(jnp.where(counts[..., None], hessian, 0), axis=0)
            return sums[0] + gradient, sums[1] + hessian

        zero = (jnp.zeros(dim, z.dtype), jnp.zeros((dim, dim), z.dtype))
        turns, body = (count, add) if devices == 1 else (-(-count // devices), add_some)
        gradient, hessian = put_together(target, jax.lax.fori_loop(0, turns, body, zero))
        number = count.astype(z.dtype)
        return gradient / number, hessian / number

    options = jit_options(SOONER if sooner else None)
    return jax.jit(values, **options), jax.jit(curvature, **options)  # noqa: TID251


def resolved(
    points: Points,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    rng: np.random.Generator,
) -> bool:
    """Whether the log density is smooth from number to number around some draws with these moments.

    Far out a model may subtract large numbers. log Beta(z; a, b) with a + b = e^20 subtracts values of
    log Gamma at 10^10, and single precision leaves thousands of nats of noise, which a search takes for
    a gain.
    |f(z + h) - 2 f(z) + f(z - h)| / 2 is free of the slope, and of the curvature where the posterior is
    wider than a few thousand numbers.
    """
    z = (mean + std * rng.standard_normal((PLACES, mean.size))).astype(points.dtype).astype(float)
    h = APART * float(np.finfo(points.dtype).eps) * np.abs(z) * rng.choice([-1.0, 1.0], z.shape)
    with np.errstate(all="ignore"):
        value = points(np.concatenate([z + h, z, z - h]))[0].reshape(3, PLACES)
        noise = np.abs(value[0] - 2 * value[1] + value[2]) / 2
    known = noise[np.isfinite(noise)]
    return known.size == 0 or float(np.median(known)) < RESOLVED
