"""Data that do not fit in memory: pools of rows that steps take turns with, and evaluation by blocks.

A pool holds some ten thousand rows on the device: runs of consecutive rows from all over the data, in an
order that is new in each epoch. Minibatches are drawn from the pool without replacement until it is
used up, and then the next one is read. To everything but the reader it is a target with few rows.
"""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, UInt32

from .._numerics.lapack import over_points
from .._util.compiling import program
from .._util.device import on_device
from .._util.random import key_of
from ..evaluation.elbo_terms import ElboTerms
from ..evaluation.metrics import likelihood_sums
from ..families import AbstractFamily
from ..targets import AbstractRows, Target

# Rows and bytes of a pool.
POOL_ROWS, POOL_BYTES = 2**16, 2**26


class Feed:
    """The pools of a target whose rows are on disk, for steps of `batch_size` rows."""

    def __init__(self, whole: Target, batch_size: int, seed: list[int]):
        assert isinstance(whole.data, AbstractRows)
        self.whole, self._source, self._seed = whole, whole.data, seed
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(whole.data.read(0, 1)))
        most = min(POOL_ROWS, max(1, POOL_BYTES // row), whole.rows)
        self.rows = max(batch_size, most // batch_size * batch_size)
        self.steps = self.rows // batch_size
        self._epoch, self._starts, self._lengths = -1, np.zeros(0, int), np.zeros(0, int)
        self._number, self._pool = -1, self._read(0)

    @property
    def target(self) -> Target:
        """The target on the rows of the present pool; the first one, before any step."""
        return self._pool

    def pieces(self, first: int, last: int) -> Iterator[tuple[Target, int, int]]:
        """Steps first, ..., last - 1 cut where the pool changes, each piece with its rows at hand."""
        while first < last:
            number = first // self.steps
            if number != self._number:
                self._pool, self._number = self._read(number), number
            end = min(last, (number + 1) * self.steps)
            yield self._pool, first, end
            first = end

    def _read(self, number: int) -> Target:
        """A pool, always the same one for the same number."""
        epoch, place = divmod(number, max(1, self.whole.rows // self.rows))
        if epoch != self._epoch:
            ends = np.append(self._source.runs[1:], self.whole.rows)
            order = np.random.default_rng([*self._seed, epoch]).permutation(ends.size)
            self._starts, self._lengths = self._source.runs[order], (ends - self._source.runs)[order]
            self._epoch = epoch
        # Where the rows of the shuffled runs are that this pool holds.
        ends = np.cumsum(self._lengths)
        begin, end = place * self.rows, (place + 1) * self.rows
        numbers, parts = [], []
        for run in range(np.searchsorted(ends, begin, side="right"), ends.size):
            offset = ends[run] - self._lengths[run]
            if offset >= end:
                break
            low, high = (int(self._starts[run] + max(0, x - offset)) for x in (begin, end))
            high = min(high, int(self._starts[run] + self._lengths[run]))
            parts.append(self._source.read(low, high))
            numbers.append(np.arange(low, high))
        data = jax.tree.map(lambda *x: on_device(np.concatenate(x)), *parts)
        return eqx.tree_at(
            lambda t: (t.data, t.row_numbers),
            self.whole,
            (data, on_device(np.concatenate(numbers), np.int32)),
            is_leaf=lambda x: x is None,
        )


class StreamedElboEvaluator:
    """The ELBO on all rows of a target on disk, at antithetic pairs that depend on `seed` alone."""

    def __init__(self, target: Target, *, pairs: int, seed: UInt32[Array, "2"]):
        self.target, self.pairs, self.seed = target, pairs, seed

    def terms(self, q: AbstractFamily, *, times: int = 1) -> ElboTerms:
        """The terms of q, with `times` as many draws."""
        pairs = self.pairs * times
        e, first, second, log_rest = _draws(self.target.without_rows(), q, self.seed, pairs)
        values = np.asarray(log_rest, float) + self.target.scale * likelihood_sums(self.target, q, e)
        terms = np.mean(values.reshape(2, pairs), axis=0)
        bad, variance = int(np.sum(~np.isfinite(values))), float(np.var(values))
        return ElboTerms(terms, np.asarray(first, float), np.sqrt(second, dtype=float), bad, variance)


@program
def _draws(
    target: Target, q: AbstractFamily, seed: UInt32[Array, "2"], pairs: int
) -> tuple[Array, Float[Array, " dim"], Float[Array, " dim"], Float[Array, " draws"]]:
    """Base draws, mean and mean square deviation of their points, and log prior - log q of each."""

    def pair(number: UInt32[Array, ""]) -> Array:
        return q.base.sample((q.base_dim,), q.dtype, key=jr.fold_in(key_of(seed), number))

    half = jax.lax.map(pair, jnp.arange(pairs, dtype=jnp.uint32))
    e = jnp.concatenate([half, -half])
    z, log_q = jax.vmap(q.transport_and_log_prob)(e)
    middle, apart = 0.5 * (z[:pairs] + z[pairs:]), 0.5 * (z[:pairs] - z[pairs:])
    prior = over_points(lambda point: target.log_prior(target.point(point)), z)
    return e, jnp.mean(middle, axis=0), jnp.mean(apart**2, axis=0), prior - log_q
