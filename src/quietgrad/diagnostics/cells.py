"""Chains that do not cross between modes: each is judged in the mode where it began.

Every point belongs to its nearest mode. With W_c the mass of the posterior in cell c, m_c and v_c its
mean and variance there, the mean is m = sum W_c m_c and the variance sum W_c (v_c + (m_c - m)^2). Chains
that stay give m_c and v_c. The masses come from bridge sampling (Meng & Wong 1996) between q's draws in
the cell and late states of the chains there, which needs an overlap of the two, and no light tails:
  Z_c = Q_c E_q[l / (s l + (1 - s) r)] / E_p[1 / (s l + (1 - s) r)],   l = p / q,  r = Z_c / Q_c.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int

from ..families import AbstractFamily
from .chains import Chains
from .comparison import Comparison, by_chains
from .draws import Draws, log_prob_at
from .metric import Metric, metric_within
from .settings import DEFAULT, Diagnostics

# Iterations of the bridge, which converges linearly, at a rate that is the overlap's share.
ITERATIONS = 50
# Chains below which nothing is said of a cell.
LEAST = 6


class Cells(NamedTuple):
    """For every mode that q has draws in: q's share, the posterior's with its error.

    `right` says where q's means and scales within the cell are not off; `whole` compares q with the
    posterior over all cells.
    """

    modes: Float[np.ndarray, "modes dim"]
    share: Float[np.ndarray, " modes"]
    mass: Float[np.ndarray, " modes"]
    error: Float[np.ndarray, " modes"]
    right: Bool[np.ndarray, " modes"]
    whole: Comparison

    def agree(self, settings: Diagnostics = DEFAULT) -> bool:
        """Whether q has the modes by their mass, and is right in each of them."""
        near = np.abs(self.share - self.mass) + self.error < settings.mode_mass
        return bool(np.all(near & self.right))


def nearest(
    z: Float[np.ndarray, "points dim"], modes: Float[np.ndarray, "modes dim"], metric: Metric
) -> Int[np.ndarray, " points"]:
    """The number of the mode that each point belongs to, by distances in a metric."""
    u, centers = metric.whiten(z), metric.whiten(modes)
    return np.argmin([np.sum((u - center) ** 2, axis=1) for center in centers], axis=0)


def within(
    drawn: Draws, modes: Float[np.ndarray, "modes dim"], settings: Diagnostics = DEFAULT
) -> Metric:
    """The metric around each of the modes, on average, from draws nearest to it in q's scales."""
    scales = Metric(np.mean(drawn.z, axis=0), np.std(drawn.z, axis=0))
    return metric_within(drawn, nearest(drawn.z, modes, scales), settings)


def by_cells(
    q: AbstractFamily,
    drawn: Draws,
    numbers: Float[np.ndarray, "draws numbers"],
    chains: Chains,
    watched: Chains,
    modes: Float[np.ndarray, "modes dim"],
    metric: Metric,
    settings: Diagnostics = DEFAULT,
) -> Cells | None:
    """The comparison by cells; None if chains cross between them, or are too few in one.

    `numbers` and `watched` are what is compared, at q's draws and along the chains.
    """
    own, began = nearest(drawn.z, modes, metric), nearest(chains.start, modes, metric)
    late = chains.late()
    at = nearest(late.reshape(-1, late.shape[2]), modes, metric).reshape(late.shape[:2])
    stayed = np.mean(at == began, axis=0) > 1 - settings.crossing
    cells = [c for c in range(len(modes)) if np.any(own == c)]
    enough = all(np.count_nonzero(stayed & (began == c)) >= LEAST for c in cells)
    if len(cells) < 2 or not enough or np.mean(stayed) < 1 - settings.crossing:
        return None
    log_q, values = (
        log_prob_at(q, late.reshape(-1, late.shape[2])).reshape(at.shape),
        chains.late_values(),
    )
    log_z, errors, parts, right = [], [], [], []
    for c in cells:
        chosen, some = np.flatnonzero(stayed & (began == c)), own == c
        part = by_chains(numbers[some], _some(watched, chosen), settings)
        right.append(not _off(part, len(chosen) - 2, len(cells), settings))
        parts.append(_moments(numbers[some], part))
        ratio = (drawn.values - drawn.log_q)[some & drawn.finite]
        bridged, error = bridge(ratio, (values - log_q)[:, chosen])
        log_z.append(bridged + math.log(np.mean(some)))
        errors.append(error)
    mass = np.exp(np.array(log_z) - np.max(log_z))
    mass = mass / np.sum(mass)
    # d log W_c = d_c - sum_k W_k d_k.
    squares = np.square(errors)
    error = mass * np.sqrt((1 - 2 * mass) * squares + np.sum(mass**2 * squares))
    share = np.array([np.mean(own == c) for c in cells])
    whole = _joined(numbers, mass, error, parts)
    return Cells(modes[cells], share, mass, error, np.array(right), whole)


def bridge(
    ratio: Float[np.ndarray, " draws"], reached: Float[np.ndarray, "moves chains"]
) -> tuple[float, float]:
    """The log of E_q[p / q] in a cell and its standard error, from log p / q at draws of q and at states
    of chains, which count once each."""
    draws, chains = ratio.size, reached.shape[1]
    share = draws / (draws + chains)
    top = float(np.median(np.concatenate([ratio, reached.ravel()])))
    a, b = np.exp(np.clip(ratio - top, -500, 500)), np.exp(np.clip(reached - top, -500, 500))

    def shares(r: float) -> tuple[np.ndarray, np.ndarray]:
        """The numerator's terms, and the denominator's averages along chains."""
        return a / (share * a + (1 - share) * r), np.mean(1 / (share * b + (1 - share) * r), axis=0)

    r = 1.0
    for _ in range(ITERATIONS):
        over, under = shares(r)
        r = float(np.mean(over) / np.mean(under))
    over, under = shares(r)
    noise = np.var(over) / (draws * np.mean(over) ** 2) + np.var(under) / (chains * np.mean(under) ** 2)
    return math.log(r) + top, math.sqrt(noise)


def _off(part: Comparison, freedom: int, cells: int, settings: Diagnostics) -> bool:
    """Whether a mean or a scale within a cell is beyond tolerance and noise.

    A cell has few chains, and there are many numbers in all cells: the level is that of Student's t, at
    which one of them all is off by chance in `false_alarms` of diagnoses.
    """
    tests = 2 * cells * part.shift.size
    level = scipy.special.stdtrit(freedom, 1 - 0.5 * settings.false_alarms / tests)
    mean = np.abs(part.shift) > np.maximum(settings.mean, level * part.shift_error)
    beyond = (part.log_ratio < settings.narrow) | (part.log_ratio > settings.wide)
    scale = beyond & (np.abs(part.log_ratio) > level * part.log_ratio_error)
    return bool(np.any(mean | scale))


class _Moments(NamedTuple):
    """Means and variances of the posterior in a cell, with errors."""

    mean: np.ndarray
    mean_error: np.ndarray
    variance: np.ndarray
    variance_error: np.ndarray


def _moments(numbers: Float[np.ndarray, "draws numbers"], part: Comparison) -> _Moments:
    variance = np.var(numbers, axis=0) * np.exp(-2 * part.log_ratio)
    std = np.sqrt(variance)
    mean = np.mean(numbers, axis=0) + part.shift * std
    return _Moments(mean, part.shift_error * std, variance, 2 * part.log_ratio_error * variance)


def _joined(
    numbers: Float[np.ndarray, "draws numbers"],
    mass: Float[np.ndarray, " cells"],
    error: Float[np.ndarray, " cells"],
    parts: list[_Moments],
) -> Comparison:
    """q against the mixture of the cells."""
    means, mean_errors, variances, variance_errors = (np.stack(x) for x in zip(*parts, strict=True))
    w, dw = mass[:, None], error[:, None]
    mean = np.sum(w * means, axis=0)
    away = means - mean
    variance = np.sum(w * (variances + away**2), axis=0)
    mean_error = np.sqrt(np.sum((w * mean_errors) ** 2 + (dw * away) ** 2, axis=0))
    noise = (w * variance_errors) ** 2 + (2 * w * away * mean_errors) ** 2
    noise = noise + (dw * (variances + away**2 - variance)) ** 2
    std = np.sqrt(variance)
    return Comparison(
        (mean - np.mean(numbers, axis=0)) / std,
        mean_error / std,
        0.5 * np.log(np.var(numbers, axis=0) / variance),
        0.5 * np.sqrt(np.sum(noise, axis=0)) / variance,
    ).known()


def _some(chains: Chains, chosen: Int[np.ndarray, " some"]) -> Chains:
    return chains._replace(
        start=chains.start[chosen], z=chains.z[:, chosen], values=chains.values[:, chosen], whole=None
    )
