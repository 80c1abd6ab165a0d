"""The ELBO of any q at the same draws, which no fit has seen, and differences with their errors.

Two families meet the same draws, and differences between them are paired: their error is far smaller
than that of either ELBO. `Difference` has the one test of whether a difference is real. Draws come from
the host, and Gaussians and their mixtures are carried along them there, so that the program of the
target's values and gradients, which fits have anyway, is all that an evaluation needs. Where draws would
be many numbers they are made inside a program, pair by pair.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from .._numerics.lapack import over_points
from .._util.compiling import program
from .._util.device import on_device
from .._util.random import key_of
from ..families import AbstractFamily, OnHost
from ..scale.sharding import on_all_devices, put_together, shared_out, shares
from ..targets import Target
from ..targets.target import log_density_in_blocks
from .metrics import BLOCK
from .points import Points, iid

# Standard errors beyond which a difference is not put down to the draws: 95 % of normal errors are
# smaller. A fit takes some dozen decisions and repairs a wrong one by the next, so that a smaller error
# rate would cost more draws than it saves steps.
STANDARD_ERRORS = 2.0
# Nats below the best ELBO that anyone found at which a run has arrived.
MARGIN = 1.0
# Pairs that one call of the program evaluates.
PAIRS = 64
# Numbers (rows or coordinates, times draws) that an evaluation may touch.
WORK = 2**26
LEAST_PAIRS = 8
# Base dimensions above which draws are made on the device, a pair at a time.
HELD = 2**14
# Rows times dimensions, and dimensions, up to which values come from the program that has the gradients
# too. Beyond, gradients that nobody asked for cost more than to compile a program of values alone.
HOST_NUMBERS, SHARED_DIM = 2**18, 2**15
# Blocks of draws that are kept.
KINDS = 4


class Difference(NamedTuple):
    """`nats`, estimated with a standard error of `error`."""

    nats: float
    error: float

    def clearly_above(self, threshold: float = 0.0) -> bool:
        """Whether it exceeds the threshold beyond its error."""
        return self.nats - STANDARD_ERRORS * self.error > threshold

    def clearly_below(self, threshold: float = 0.0) -> bool:
        """Whether it stays below the threshold, its error included."""
        return self.nats + STANDARD_ERRORS * self.error < threshold

    def conclusive(self, threshold: float) -> bool:
        """Whether it is clearly above a threshold, or what is there to gain clearly below it."""
        return self.clearly_above(threshold) or self.non_negative.clearly_below(threshold)

    @property
    def non_negative(self) -> "Difference":
        """The same for a quantity that cannot be negative: what a step that is optional may gain."""
        return Difference(max(self.nats, 0.0), self.error)

    def __str__(self) -> str:
        return f"{self.nats:.3f} ± {self.error:.3f} nats"


# Of something that could not be estimated.
UNKNOWN = Difference(math.inf, 0.0)


class Deep(NamedTuple):
    """The share of pairs far below the others, and the terms of the others."""

    share: float
    others: "ElboTerms"


class ElboTerms(NamedTuple):
    """f(z) - log q(z) averaged over each antithetic pair; their mean estimates the ELBO.

    `mean` and `std` are those of the points z themselves; `bad` counts draws at which the log density
    was not finite. `variance` is that of f - log q over single draws; NaN where pairs meet rows of their
    own, which differ by far more than the draws.
    """

    values: Float[np.ndarray, " pairs"]
    mean: Float[np.ndarray, " dim"]
    std: Float[np.ndarray, " dim"]
    bad: int
    variance: float = math.nan

    @property
    def elbo(self) -> float:
        """The mean of the terms."""
        return float(np.mean(self.values))

    @property
    def gap(self) -> float:
        """About how far the ELBO is below the log evidence: half the variance of log weights.

        Exact to second order where q is close to the posterior, and only a sign of trouble elsewhere.
        """
        return self.variance / 2 if math.isfinite(self.variance) else math.inf

    @property
    def error(self) -> float:
        """The standard error of `elbo`."""
        if not np.all(np.isfinite(self.values)):
            return math.nan
        with np.errstate(over="ignore"):
            return float(np.std(self.values, ddof=1) / math.sqrt(self.values.size))

    def deep(self, below: float) -> Deep:
        """The pairs more than `below` nats under the median: a few of them can be all of the error."""
        low = self.values < float(np.median(self.values)) - below
        return Deep(float(np.mean(low)), self._replace(values=self.values[~low]))

    def resolved(self, most: float) -> "ElboTerms":
        """The terms of pairs with a number, where the log density is none (NaN or infinitely high) at a
        share of at most `most` of the draws: numbers end in some far tail. A density of zero is a number
        that counts."""
        unknown = ~np.isfinite(self.values)
        if self.bad > 2 * most * self.values.size or np.any(np.isneginf(self.values)) or np.all(unknown):
            return self
        return self._replace(values=self.values[~unknown])


class ElboEvaluator:
    """Evaluates families at `pairs` antithetic pairs of draws that depend on `seed` alone.

    With `rows`, each pair meets rows of its own, scaled up to all. What rows differ by then shows in the
    terms, and so in the error of a difference: on the same few rows for all pairs, an answer that only
    suits these would seem better beyond doubt. Families that carry draws in NumPy are evaluated on the
    host where rows x coordinates are at most `host_numbers`. For the others, draws of at most `held`
    coordinates are made on the host, and longer ones inside the program, pair by pair.
    """

    def __init__(
        self,
        target: Target,
        *,
        pairs: int,
        seed: UInt32[Array, "2"],
        rows: Int[np.ndarray, "pairs rows"] | None = None,
        host_numbers: int = HOST_NUMBERS,
        held: int = HELD,
    ):
        self.target, self.seed = target, seed
        self._host_numbers, self._held = host_numbers, held
        self._words = [int(word) for word in np.asarray(seed)]
        # Draws of the last few kinds of families, and the shared program of each.
        self._draws: dict[Any, Float[np.ndarray, "pairs base"]] = {}
        self._shared: dict[Any, Points | None] = {}
        # The last draws that a program was given, on the host and on the device.
        self._there: tuple[np.ndarray | None, Array | None] = None, None
        self.at_once = min(pairs, PAIRS)
        self.blocks = max(1, -(-pairs // PAIRS))
        self.rows = None if rows is None else on_device(rows, np.int32)
        if rows is not None and (self.blocks, len(rows)) != (1, pairs):
            raise ValueError(f"each of at most {PAIRS} pairs needs rows; got {len(rows)} for {pairs}")

    @property
    def pairs(self) -> int:
        """How many pairs judge."""
        return self.blocks * self.at_once

    def terms(self, q: AbstractFamily, *, times: int = 1) -> ElboTerms:
        """The terms of q, the same draws each time; `times` as many if asked for."""
        parts = [self._block(q, number) for number in range(times * self.blocks)]
        if len(parts) == 1:
            return parts[0]
        # Squares around the mean of all draws: within blocks, and of the blocks' means.
        with np.errstate(all="ignore"):
            within = float(np.mean([part.variance for part in parts]))
            between = float(np.var([np.mean(part.values) for part in parts]))
            square = np.mean([part.std**2 for part in parts], axis=0)
        return ElboTerms(
            np.concatenate([part.values for part in parts]),
            np.mean([part.mean for part in parts], axis=0),
            np.sqrt(square),
            sum(part.bad for part in parts),
            within + between,
        )

    def _block(self, q: AbstractFamily, number: int) -> ElboTerms:
        if isinstance(q, OnHost):
            points = self._points(q.dim, q.dtype)
            if points is not None:
                return _on_host(points, q, self._half(q, number))
        return self._on_device(q, number)

    def _points(self, dim: int, dtype: Any) -> Points | None:
        """The program that judging shares with fits, where it is of use."""
        numbers = dim * max(1, self.target.rows)
        if self.rows is not None or dim > SHARED_DIM or numbers > self._host_numbers:
            return None
        if (dim, dtype) not in self._shared:
            points = Points(self.target, dtype)
            self._shared[dim, dtype] = points if points.has_gradient(dim) else None
        return self._shared[dim, dtype]

    def _half(self, q: AbstractFamily, block: int) -> Float[np.ndarray, "pairs base"]:
        """One draw of each pair. Families with more draws than coordinates share the first ones."""
        kind = q.base, q.dim, q.base_dim, block
        if kind not in self._draws:
            rng = np.random.default_rng([*self._words, block])
            # Hyperparameters are coordinates without a draw.
            common = min(q.dim, q.base_dim)
            shapes = (self.at_once, common), (self.at_once, q.base_dim - common)
            made = np.concatenate([iid(q.base, shape, rng) for shape in shapes], axis=1)
            if len(self._draws) >= KINDS:
                self._draws.clear()
            self._draws[kind] = made
        return self._draws[kind]

    def _half_on_device(self, q: AbstractFamily, block: int) -> Float[Array, "pairs base"]:
        half = self._half(q, block)
        kept, e = self._there
        if kept is not half or e is None or e.dtype != q.dtype:
            e = on_device(half, q.dtype)
            self._there = half, e
        return e

    def _on_device(self, q: AbstractFamily, block: int) -> ElboTerms:
        e = None
        if q.base_dim <= self._held:
            e = self._half_on_device(q, block)
        number, q = on_device(block, np.uint32), on_all_devices(self.target, q)
        found = jax.device_get(_terms(self.target, q, self.seed, number, self.at_once, self.rows, e))
        values, mean, square = (np.asarray(x, float) for x in found[:3])
        variance = float(found[4]) if self.rows is None else math.nan
        return ElboTerms(values, mean, np.sqrt(square), int(found[3]), variance)


def _on_host(points: Points, q: OnHost, half: Float[np.ndarray, "pairs base"]) -> ElboTerms:
    """The terms of a family that can carry draws in NumPy, at one block of pairs."""
    e, pairs = np.concatenate([half, -half]), len(half)
    with np.errstate(all="ignore"):
        z, log_q = q.host_transport_and_log_prob(e)
        values = points(z)[0] - log_q
        first, second = z[:pairs], z[pairs:]
        std = np.sqrt(np.mean((0.5 * (first - second)) ** 2, axis=0))
        bad, variance = int(np.sum(~np.isfinite(values))), float(np.var(values))
        terms, mean = 0.5 * (values[:pairs] + values[pairs:]), np.mean(0.5 * (first + second), axis=0)
    return ElboTerms(terms, mean, std, bad, variance)


def affordable_pairs(rows: int, dim: int, most: int) -> int:
    """As many pairs as an evaluation should take: fewer where there are many rows or coordinates."""
    return max(LEAST_PAIRS, min(most, WORK // (2 * max(rows, dim, 1))))


def paired_difference(a: ElboTerms, b: ElboTerms) -> Difference:
    """a's ELBO minus b's, pair by pair; an ELBO that is not finite counts as infinitely low.

    Where q reaches into tails of the density, a few draws lose thousands of nats, and the standard error
    is as large as the loss itself. A mean of log weights with such a tail is rather too high than too
    low. So a loss that most pairs agree on, by a sign test, is not put down to the draws.
    """
    if not np.all(np.isfinite(a.values)):
        return Difference(-math.inf, 0.0)
    if not np.all(np.isfinite(b.values)):
        return Difference(math.inf, 0.0)
    difference = a.values - b.values
    with np.errstate(over="ignore"):
        error = float(np.std(difference, ddof=1) / math.sqrt(difference.size))
        mean, signs = float(np.mean(difference)), float(np.sum(np.sign(difference)))
    if mean < 0 and signs < -STANDARD_ERRORS * math.sqrt(difference.size):
        # Just beyond the limit of what counts as clear.
        error = min(error, 0.99 * abs(mean) / STANDARD_ERRORS)
    return Difference(mean, error)


@program
def _terms(
    target: Target,
    q: AbstractFamily,
    seed: UInt32[Array, "2"],
    block: UInt32[Array, ""],
    pairs: int,
    rows: Int[Array, "pairs rows"] | None,
    half: Float[Array, "pairs base"] | None,
) -> tuple[Array, Float[Array, " dim"], Float[Array, " dim"], Int[Array, ""], Float[Array, ""]]:
    """The terms of one block of pairs, moments of their points, how many were bad, and the variance."""
    key = jr.fold_in(key_of(seed), block)

    def pair(number: UInt32[Array, ""]) -> tuple[Array, Array, Array]:
        if half is None:
            e = q.base.sample((q.base_dim,), q.dtype, key=jr.fold_in(key, number))
        else:
            e = half[number]
        z, log_q = jax.vmap(q.transport_and_log_prob)(jnp.stack([e, -e]))
        seen = target if rows is None else target.batch(rows[number])
        values = jax.vmap(lambda point: log_density_in_blocks(seen, point, BLOCK))(z) - log_q
        return values, 0.5 * (z[0] + z[1]), (0.5 * (z[0] - z[1])) ** 2

    def some(sums: tuple[Array, Array], numbers: UInt32[Array, " some"]) -> tuple[Any, Array]:
        shared = target.mesh is not None
        values, middle, square = over_points(pair, shared_out(target, numbers), shared=shared)
        return (sums[0] + jnp.sum(middle, axis=0), sums[1] + jnp.sum(square, axis=0)), values

    seen_at_once = target.rows if rows is None else rows.shape[1]
    each = BLOCK // (2 * max(min(seen_at_once, BLOCK), q.base_dim))
    at_once = _divisor(pairs, shares(target) * max(1, each))
    numbers = jnp.arange(pairs, dtype=jnp.uint32).reshape(-1, at_once)
    zero = jnp.zeros(q.dim, q.dtype)
    (first, second), values = jax.lax.scan(some, (zero, zero), numbers)
    bad = jnp.sum(~jnp.isfinite(values))
    terms = jnp.mean(values.reshape(pairs, 2), axis=1)
    return put_together(target, (terms, first / pairs, second / pairs, bad, jnp.var(values)))


def _divisor(number: int, most: int) -> int:
    """The largest divisor that is not above `most`."""
    return next(n for n in range(max(1, min(number, most)), 0, -1) if number % n == 0)
