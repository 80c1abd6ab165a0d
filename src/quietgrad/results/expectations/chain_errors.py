"""Standard errors of means over chains whose draws depend on each other.

The effective number of draws is that of Stan and ArviZ: autocorrelations of all chains together, with
what chains differ by among themselves, summed in pairs while they are positive and falling (Geyer 1992).
"""

import numpy as np
from jaxtyping import Float

Series = Float[np.ndarray, "chains draws numbers"]


def mean_error(series: Series) -> Float[np.ndarray, " numbers"]:
    """The standard error of the mean over all draws of all chains."""
    within, both = _variances(series)
    size = _effective(series, within, both)
    return np.sqrt(both / size)


def _variances(series: Series) -> tuple[Float[np.ndarray, " numbers"], Float[np.ndarray, " numbers"]]:
    """The variance within chains, and an estimate of the whole one that sees chains that differ."""
    chains, draws, _ = series.shape
    within = np.mean(np.var(series, axis=1, ddof=1), axis=0)
    both = within * (draws - 1) / draws
    if chains > 1:
        both = both + np.var(np.mean(series, axis=1), axis=0, ddof=1)
    return within, both


def _effective(
    series: Series, within: Float[np.ndarray, " numbers"], both: Float[np.ndarray, " numbers"]
) -> Float[np.ndarray, " numbers"]:
    chains, draws, numbers = series.shape
    covariance = _autocovariance(series)
    # What rounding leaves of a constant has no correlation; its error is zero whatever its size.
    safe = np.where(both > 0, both, 1.0)
    correlation = 1 - (within[None, :] - np.mean(covariance, axis=0)) / safe[None, :]
    correlation[0] = 1.0
    even = draws - draws % 2
    pairs = correlation[0:even:2] + correlation[1:even:2]
    positive = np.cumprod(pairs > 0, axis=0)
    falling = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    time = -1 + 2 * np.sum(falling, axis=0)
    # Draws that take turns can be worth more than independent ones, but not without end.
    least = 1 / np.log10(max(chains * draws, 10))
    return chains * draws / np.maximum(time, least)


def _autocovariance(series: Series) -> Float[np.ndarray, "chains draws numbers"]:
    draws = series.shape[1]
    centred = series - np.mean(series, axis=1, keepdims=True)
    # Zeros keep the end of a chain from meeting its start.
    spectrum = np.fft.rfft(centred, n=2 * draws, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * draws, axis=1)[:, :draws]
    return products / draws
