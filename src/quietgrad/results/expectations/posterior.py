"""Better posterior expectations from anyone's chains: zero-variance control variates, cross-fitted.

The oldest use of Stein's identity in statistics (Assaraf & Caffarel 1999; Mira et al. 2013; South et al.
2022). All that it needs beside the draws is the gradient of the log density at each of them.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._numerics.lapack import one_blas_thread
from ..._util.compiling import program
from ...evaluation.points import Points
from ...targets import Target
from ..display.table import named
from .chain_errors import mean_error
from .cross_fit import Draws, Values, column_count, cross_fitted, stein_columns, whitened
from .reading import points_of
from .result import Expectations, Named

# Of the mean diagonal of the Gram matrix; the larger one is for fits on few draws more than columns.
PENALTIES = (1e-3, 3e-2)
# Control variates must make an error at least this much smaller to be used. Errors of 1,000 draws are
# known to some tenths, and a fit that helps by less than that may as well do harm.
LEAST_SHARE = 0.85
# Parts of a single chain, which fits are made without in turn.
PARTS = 5
LEAST_DRAWS = 20
# A variance below which a number does not vary.
TINY = 1e-300
# Columns beyond which second order would take minutes, and memory for their products.
MOST_COLUMNS = 3000
# Standard errors that the mean of a score may be from zero. Of draws of the right posterior none in
# billions is; those of slow chains, whose errors are too small, can be some more than expected.
FAR = 10.0


def posterior_expectations(
    target: Target,
    draws: Any,
    functions: Mapping[str, Callable[[Any], Any]] | None = None,
    *,
    order: int | None = None,
) -> Expectations:
    """Means and standard deviations under the target's posterior, with less noise than the draws have.

    Control variates are polynomials of order 1 or 2 of the unconstrained point under the Stein operator.
    Those for a chain are fitted on the other chains, so that a mean is as unbiased as the plain one;
    a single chain is fitted in five parts, whose ends know a little of each other. For every number the
    order is used whose error is the smallest, the plain mean where none helps. Errors account for
    autocorrelation, and for chains that differ. On near-Gaussian posteriors the squared error falls
    tenfold to a thousandfold.

    Takes one gradient for each draw, and linear algebra in the number of columns, d or d (d + 3)/2.

    Args:
        target: what was sampled.
        draws: from whatever sampled it: an ArviZ posterior (of PyMC, NumPyro, ...) or a NumPyro `MCMC`
            for a target that was made from the model; a dict of draws by name, (chains, draws, ...); or
            an array of points of the target, (chains, draws, dim).
        functions: of one draw, in the names and on the scale of the model, by name; they may return
            arrays. None asks for every variable. Quantiles are no expectations of a smooth function,
            and are not offered.
        order: 1 or 2, in place of the better one.
    """
    if order not in (None, 1, 2):
        raise ValueError(f"order must be 1, 2 or None, which chooses; got {order!r}")
    points = points_of(target, draws)
    chains, length, dim = points.shape
    if chains * length < LEAST_DRAWS or length < 4:
        raise ValueError(
            f"errors need at least {LEAST_DRAWS} draws, and 4 of each chain; got {chains} x {length}"
        )
    flat = points.reshape(-1, dim)
    _, scores = Points(target, jnp.zeros(()).dtype)(flat)
    if not np.isfinite(scores).all():
        bad = int(np.sum(~np.isfinite(scores).all(axis=1)))
        raise ValueError(
            f"the gradient of the log density is not finite at {bad} of {len(flat)} draws; are these "
            "draws of this target, and on its unconstrained scale?"
        )
    values = _evaluated(target, functions, flat)
    numbers = np.concatenate([x.reshape(len(flat), -1) for x in values.values()], axis=1)
    if not np.isfinite(numbers).all():
        raise ValueError("a function is not finite at some draws")
    with one_blas_thread():
        return _expectations(values, numbers, whitened(flat, scores), (chains, length), order)


def _evaluated(target: Target, functions: Mapping[str, Any] | None, flat: Draws) -> Named:
    """What is asked for at every draw."""

    @program
    def everywhere(target: Target, points: Float[Array, "draws dim"]) -> dict[str, Any]:
        def one(z: Float[Array, " dim"]) -> dict[str, Any]:
            point = target.constrain(z)
            if functions is None:
                return named(point)
            return {name: function(point) for name, function in functions.items()}

        return jax.lax.map(one, points)

    found = jax.device_get(everywhere(target, jnp.asarray(flat, jnp.zeros(()).dtype)))
    return {name: np.asarray(value, float) for name, value in found.items()}


class _Estimates(NamedTuple):
    """Means and their errors, number by number, and the order that they came from."""

    mean: Float[np.ndarray, " numbers"]
    error: Float[np.ndarray, " numbers"]
    order: Int[np.ndarray, " numbers"]


def _expectations(
    values: Named,
    numbers: Values,
    white: tuple[Draws, Draws],
    shape: tuple[int, int],
    order: int | None,
) -> Expectations:
    around = np.mean(numbers, axis=0)
    centred = numbers - around
    both = np.concatenate([centred, centred**2], axis=1)
    plain, better = _compared(white, both, shape, order)
    count = numbers.shape[1]

    def moments(found: _Estimates) -> tuple[np.ndarray, ...]:
        shift, square = np.split(found.mean, [count])
        variance = square - shift**2
        # Weights can be negative, and so can a variance of few draws; the plain one never is.
        own = plain.mean[count:]
        variance = np.where(variance > 0, variance, own)
        std = np.sqrt(variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            std_error = np.where(std > 0, found.error[count:] / (2 * std), 0.0)
        return around + shift, found.error[:count], std, std_error

    mean, error, std, std_error = moments(better)
    plain_mean, plain_error, plain_std, _ = moments(plain)

    def by_name(flat: np.ndarray) -> Named:
        sizes = [int(np.prod(x.shape[1:])) for x in values.values()]
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        pairs = zip(values.items(), parts, strict=True)
        return {name: part.reshape(x.shape[1:]) for (name, x), part in pairs}

    return Expectations(
        by_name(mean),
        by_name(error),
        by_name(std),
        by_name(std_error),
        by_name(plain_mean),
        by_name(plain_error),
        by_name(plain_std),
        by_name(better.order[:count]),
        *shape,
    )


def _compared(
    white: tuple[Draws, Draws], values: Values, shape: tuple[int, int], order: int | None
) -> tuple[_Estimates, _Estimates]:
    """The plain means, and the best of those with control variates."""

    def estimated(left: Values, order: int) -> _Estimates:
        error = mean_error(left.reshape(*shape, -1))
        return _Estimates(np.mean(left, axis=0), error, np.full(left.shape[1], order))

    plain = best = estimated(values, 0)
    _warn_of_other_draws(estimated(white[1], 0))
    chains, length = shape
    bounds = np.linspace(0, chains * length, (chains if chains > 1 else PARTS) + 1).astype(int)
    groups = [slice(*pair) for pair in zip(bounds[:-1], bounds[1:], strict=True)]
    fewest, dim = bounds[-1] - max(g.stop - g.start for g in groups), white[0].shape[1]
    for tried in (1, 2) if order is None else (order,):
        count = column_count(dim, tried)
        if order is None and tried == 2 and not count < min(fewest, MOST_COLUMNS):
            continue
        columns = stein_columns(*white, tried)
        for left in cross_fitted(columns, values, groups, PENALTIES):
            found = estimated(left, tried)
            # Beside a plain mean; an order that was asked for is used whatever it does.
            asked = np.inf if order is not None else LEAST_SHARE
            smaller = found.error < np.where(best.order == 0, asked, 1.0) * best.error
            if order is None:
                smaller &= _quieter_everywhere(left, values, groups)
            best = _Estimates(*(np.where(smaller, a, b) for a, b in zip(found, best, strict=True)))
    return plain, best


def _quieter_everywhere(
    left: Values, values: Values, groups: list[slice]
) -> Bool[np.ndarray, " numbers"]:
    """Whether what is left of a function varies less than the function in every group of draws.

    Each group is judged by coefficients that have not seen it. Where tails are heavy a few draws decide
    over errors of all draws; they are in one group or another, and a fit that only seems to help loses
    in some.
    """
    ratios = [np.var(left[g], axis=0) / np.maximum(np.var(values[g], axis=0), TINY) for g in groups]
    return np.max(ratios, axis=0) < 1


def _warn_of_other_draws(scores: _Estimates) -> None:
    """The score has mean zero under its own density."""
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(scores.mean) / scores.error
    worst = float(np.max(np.where(np.isfinite(off), off, 0.0)))
    if worst > FAR:
        warnings.warn(
            f"the mean gradient of the log density is {worst:.0f} standard errors from zero: the draws "
            "are of another posterior than the target's, or their chains have not mixed",
            stacklevel=4,
        )
