"""What is measured of a fit: ELBO and test lppd.

Draws are worked through in blocks, so that memory stays bounded whatever the number of draws or rows.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from .._numerics.lapack import over_points
from .._util.checks import instance, whole
from .._util.compiling import program
from .._util.device import on_device
from ..families import AbstractFamily
from ..targets import Target
from ..targets.target import log_density_in_blocks

# Likelihood values (draws x rows) held at once. A model keeps tens of floats for each, so this is
# some tens of megabytes; larger blocks were no faster on a CPU, whose caches they leave.
BLOCK = 2**18
# Rows of a target on disk that are read at once.
DISK_BLOCK = 2**16


def elbo(
    target: Target, q: AbstractFamily, *, draws: int = 500, key: Key[Array, ""]
) -> Float[Array, ""]:
    """The ELBO on all rows of the target, from `draws` independent draws."""
    return elbo_with_error(target, q, draws=draws, key=key)[0]


def elbo_with_error(
    target: Target, q: AbstractFamily, *, draws: int = 500, key: Key[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The ELBO and its Monte Carlo standard error (the draws' spread over sqrt(draws))."""
    _check(target, q)
    shape = (whole(draws, "draws", least=2), q.base_dim)
    e = q.base.sample(shape, q.dtype, key=key)
    if target.on_disk:
        rest = elbo_terms(target.without_rows(), q, e)
        values = rest + jnp.asarray(target.scale * likelihood_sums(target, q, e), rest.dtype)
    else:
        values = elbo_terms(target, q, e)
    return jnp.mean(values), jnp.std(values, ddof=1) / jnp.sqrt(values.size)


def lppd(
    target: Target, q: AbstractFamily, *, draws: int = 1000, key: Key[Array, ""]
) -> Float[Array, ""]:
    """Log pointwise predictive density of the target's rows: sum_i log mean_z p(x_i | z).

    Pass the target that holds the test rows; z are `draws` draws from q.
    """
    _check(target, q)
    if target.rows == 0:
        raise ValueError("lppd needs a target with rows; this one has no data")
    draws = whole(draws, "draws", least=1)
    if target.on_disk:
        parts = [_lppd(part, q, draws, key) for part, _ in row_blocks(target, distinct=True)]
        return jnp.sum(jnp.stack(parts))
    return _lppd(target, q, draws, key)


def likelihood_sums(
    target: Target, q: AbstractFamily, e: Float[Array, "draws base"]
) -> Float[np.ndarray, " draws"]:
    """The log likelihood of all rows of a target on disk, for each base draw, read block by block."""
    total = np.zeros(e.shape[0])
    for part, new in row_blocks(target):
        total += np.asarray(_likelihood_sums(part, q, e, on_device(new)), float)
    return total


def row_blocks(
    target: Target, *, distinct: bool = False
) -> Iterator[tuple[Target, Bool[np.ndarray, " rows"]]]:
    """The rows of a target on disk in blocks of one length, and which of them are new in each.

    One length, so that one program does. With `distinct` the last block is shorter instead.
    """
    rows = -(-target.rows // -(-target.rows // DISK_BLOCK))
    for first in range(0, target.rows, rows):
        start = first if distinct else min(first, target.rows - rows)
        numbers = np.arange(start, min(start + rows, target.rows))
        yield target.on_rows(numbers), numbers >= first


def _check(target: Target, q: AbstractFamily) -> None:
    instance(target, Target, "target")
    instance(q, AbstractFamily, "q")
    target.check_dim(q.dim)


@program
def elbo_terms(
    target: Target, q: AbstractFamily, e: Float[Array, "draws base"], block: int = BLOCK
) -> Float[Array, " draws"]:
    """f(z) - log q(z) for each base draw: the ELBO is their mean. Equal draws make fits comparable.

    `block` likelihood values are held at once.
    """

    def term(e: Float[Array, " base"]) -> Float[Array, ""]:
        z, log_q = q.transport_and_log_prob(e)
        return log_density_in_blocks(target, z, block) - log_q

    return over_points(term, e, at_once=_draws_at_once(target, q, e.shape[0], block))


@program
def _likelihood_sums(
    target: Target, q: AbstractFamily, e: Float[Array, "draws base"], new: Bool[Array, " rows"]
) -> Float[Array, " draws"]:
    def total(e: Float[Array, " base"]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(new, target.log_likelihoods(q.transport(e)), 0))

    return jax.lax.map(total, e)


@program
def _lppd(
    target: Target, q: AbstractFamily, draws: int, key: Key[Array, ""], block: int = BLOCK
) -> Float[Array, ""]:
    at_once = _draws_at_once(target, q, draws, block)
    e = q.base.sample((draws, q.base_dim), q.dtype, key=key)

    def total(e: Float[Array, "some base"]) -> Float[Array, " rows"]:
        log_lik = over_points(lambda draw: target.log_likelihoods(q.transport(draw)), e)
        return jax.nn.logsumexp(log_lik, axis=0)

    whole_blocks = draws // at_once * at_once
    blocks = e[:whole_blocks].reshape(-1, at_once, q.base_dim)
    start = jnp.full(target.rows, -jnp.inf, q.dtype)
    sums, _ = jax.lax.scan(lambda s, block: (jnp.logaddexp(s, total(block)), None), start, blocks)
    if whole_blocks < draws:
        sums = jnp.logaddexp(sums, total(e[whole_blocks:]))
    return jnp.sum(sums - jnp.log(draws))


def _draws_at_once(target: Target, q: AbstractFamily, draws: int, block: int) -> int:
    return min(draws, max(1, block // max(min(target.rows, block), q.base_dim)))
