"""q of a smooth log density in a few dimensions, from values and slopes: its mode, a Gaussian, a flow.

Everything is on the host at fixed draws that are the same in each iteration, so the ELBO is a smooth
function of some dozens of numbers. Draws are pairs, standardised to a unit second moment: averages of
quadratics over them are exact.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from .._numerics.lbfgs import LbfgsState, iterate
from ..evaluation.points import sobol_pairs
from ..families.bases import Normal
from ..families.host_triangular import HostTriangular
from ..families.triangular import Triangular

Density = Callable[
    [Float[np.ndarray, "points k"]], tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points k"]]
]
Vector = Float[np.ndarray, " k"]
Matrix = Float[np.ndarray, "k k"]


class Peak(NamedTuple):
    """A mode, the root C of its inverse curvature, and what a further Newton step would gain."""

    at: Vector
    root: Matrix
    left: float


class Gaussian(NamedTuple):
    """The best Gaussian at fixed draws e, the log weights there and the slopes in its coordinates.

    `left` is what a further step would gain.
    """

    mean: Vector
    root: Matrix
    e: Float[np.ndarray, "draws k"]
    log_weights: Float[np.ndarray, " draws"]
    slopes: Float[np.ndarray, "draws k"]
    left: float

    def at(self, density: Density, e: Float[np.ndarray, "draws k"]) -> "Gaussian":
        """The same at other draws."""
        return _evaluated(density, self.mean, self.root, e)._replace(left=self.left)

    @property
    def gap(self) -> float:
        """Nats below the log evidence, to second order: half the variance of the log weights."""
        return 0.5 * float(np.var(self.log_weights))


def standardised_pairs(pairs: int, dim: int, rng: np.random.Generator) -> Float[np.ndarray, "draws dim"]:
    """Quasi-random normal pairs with second moments of exactly one."""
    e = sobol_pairs(Normal(), pairs, dim, rng)
    root = np.linalg.cholesky(e.T @ e / len(e))
    return np.linalg.solve(root, e.T).T


class PeakSearch(eqx.Module):
    """L-BFGS, then Newton steps with Hessians from differences of slopes.

    `iterations` of L-BFGS lead near; Newton steps, `newton_steps` at most, end when one would gain less
    than `enough` nats. Slopes differ over `near` at first, over `share` of an sd once these are known.
    """

    iterations: int = 30
    newton_steps: int = 12
    enough: float = 1e-4
    near: float = 0.02
    share: float = 0.3

    def climb(self, density: Density, g: Vector) -> Vector:
        """Uphill by L-BFGS."""

        def loss(x: Vector) -> tuple[float, Vector]:
            value, slope = density(x[None])
            return -float(value[0]), -slope[0]

        return iterate(loss, LbfgsState.begin(g), self.iterations)[0].at.x

    def settle(self, density: Density, g: Vector) -> Peak | None:
        """Newton steps from g; None if the density is not finite around it."""
        k, sizes = len(g), np.full(len(g), self.near)
        root, left = np.diag(sizes), math.inf
        for _ in range(self.newton_steps):
            moves = np.diag(sizes)
            values, slopes = density(np.concatenate([g[None], g + moves, g - moves]))
            if not (np.all(np.isfinite(values)) and np.all(np.isfinite(slopes))):
                return None
            hessian = (slopes[1 : k + 1] - slopes[k + 1 :]) / (2 * sizes[:, None])
            # In the units of the differences: coordinates may differ by powers of ten.
            unit = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(hessian)), 1e-12))
            own, vectors = np.linalg.eigh(-0.5 * (hessian + hessian.T) * np.outer(unit, unit))
            own = np.maximum(np.abs(own), 1e-4)
            root = unit[:, None] * vectors / np.sqrt(own)
            step = root @ (root.T @ slopes[0])
            left = 0.5 * float(slopes[0] @ step)
            stds = np.sqrt(np.sum(root**2, axis=1))
            settled = np.all(sizes < 2 * self.share * stds) and np.all(sizes > 0.1 * self.share * stds)
            sizes = self.share * stds
            if left < self.enough and settled:
                break
            lengths = 2.0 ** -np.arange(8.0)
            trials = density(g + lengths[:, None] * step)[0]
            place = int(np.argmax(np.where(np.isfinite(trials), trials, -np.inf)))
            # Below what the values resolve the slopes know better.
            resolution = 1e-6 * abs(values[0])
            if left <= resolution and np.isfinite(trials[0]):
                place = 0
            elif not trials[place] > values[0]:
                break
            g = g + lengths[place] * step
        root = np.linalg.cholesky(root @ root.T)
        return Peak(g, root, left)


class GaussianSteps(eqx.Module):
    """Newton steps for the mean and root of a Gaussian at `pairs` fixed pairs (Opper & Archambeau 2009).

    In q's own coordinates the averaged Hessian is the average of slopes times draws (Price 1958), so no
    Hessian is taken. A step that loses is halved, `halvings` times at most.
    """

    pairs: int = 16
    pairs_each: int = 4
    steps: int = 15
    halvings: int = 6
    enough: float = 1e-5
    least: float = 0.05
    most: float = 20.0

    def fit(self, density: Density, peak: Peak, rng: np.random.Generator) -> Gaussian | None:
        """The best Gaussian from the peak; None where the density is not finite at its draws."""
        k = len(peak.at)
        e = standardised_pairs(max(self.pairs, self.pairs_each * k), k, rng)
        found = _evaluated(density, peak.at, peak.root, e)
        for _ in range(self.halvings):
            if np.isfinite(found.log_weights).all():
                break
            found = _evaluated(density, peak.at, 0.5 * found.root, e)
        if not np.isfinite(found.log_weights).all():
            return None
        for _ in range(self.steps):
            gradient = np.mean(found.slopes, axis=0)
            product = found.slopes.T @ e / len(e)
            own, vectors = np.linalg.eigh(-0.5 * (product + product.T))
            own = np.clip(own, self.least, self.most)
            step = vectors @ ((vectors.T @ gradient) / own)
            left = 0.5 * float(gradient @ step) + 0.25 * float(np.sum((own - 1) ** 2))
            found = found._replace(left=left)
            if left < self.enough:
                break
            length, better = 1.0, None
            for _ in range(self.halvings):
                scaled = vectors / np.sqrt((1 - length) + length * own)
                root = np.linalg.cholesky(found.root @ scaled @ scaled.T @ found.root.T)
                trial = _evaluated(density, found.mean + length * (found.root @ step), root, e)
                resolution = 1e-7 * float(np.max(np.abs(found.log_weights)))
                if np.mean(trial.log_weights) > np.mean(found.log_weights) - resolution:
                    better = trial
                    break
                length *= 0.5
            if better is None:
                break
            found = better
        return found


def _evaluated(
    density: Density, mean: Vector, root: Matrix, e: Float[np.ndarray, "draws k"]
) -> Gaussian:
    values, slopes = density(mean + e @ root.T)
    log_q = -0.5 * np.sum(e**2, axis=1) - 0.5 * e.shape[1] * math.log(2 * math.pi)
    log_q = log_q - float(np.sum(np.log(np.diagonal(root))))
    return Gaussian(mean, root, e, values - log_q, slopes @ root, math.inf)


def influence_order(gaussian: Gaussian) -> Int[np.ndarray, " k"]:
    """Coordinates of the Gaussian's own, those first that the scales of others follow most.

    How the curvature of i follows j is E (slope_i + e_i) e_i e_j, a third derivative.
    """
    left = gaussian.slopes + gaussian.e
    third = (left * gaussian.e).T @ gaussian.e / len(gaussian.e)
    np.fill_diagonal(third, 0.0)
    return np.argsort(-np.sum(third**2, axis=0), kind="stable")


class FlowSteps(eqx.Module):
    """L-BFGS for a `Triangular` flow at `pairs` fixed pairs, or `pairs_each` for each coordinate.

    Fixed draws are overfitted: in six coordinates a flow has 90 numbers. `judging_pairs` fresh ones say
    by how much. Where the flow has a gap of more than `even` nats there, and its average log weight is
    lower by more than that, it goes on at `more` times the pairs. Weights with a smaller gap are worth
    97.5 % of their number: a verdict rests on them then, and on chains otherwise (`evidence.even`).
    """

    pairs: int = 128
    pairs_each: int = 48
    iterations: int = 80
    memory: int = 30
    judging_pairs: int = 128
    even: float = 0.0127
    more: int = 4

    def fit(
        self, density: Density, start: Triangular, rng: np.random.Generator
    ) -> tuple[Triangular, float]:
        """The best flow from the start, and by how many nats it is better at the first fixed draws."""
        k, pairs, begun = start.dim, max(self.pairs, self.pairs_each * start.dim), start.on_host()
        own, before, after = self._climbed(density, begun, standardised_pairs(pairs, k, rng))
        fresh = _log_weights(density, own, standardised_pairs(self.judging_pairs, k, rng))
        finite = bool(np.all(np.isfinite(fresh)))
        if not finite or min(0.5 * np.var(fresh), after - np.mean(fresh)) > self.even:
            again = own if finite else begun
            e = standardised_pairs(self.more * pairs, k, rng)
            found, _, reached = self._climbed(density, again, e)
            own = found if math.isfinite(reached) else own
        return start.with_host(own), after - before

    def _climbed(
        self, density: Density, own: HostTriangular, e: Float[np.ndarray, "draws k"]
    ) -> tuple[HostTriangular, float, float]:
        """The best flow at these draws, and the average log weight there, before and after."""

        def loss(x: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
            flow = own.with_numbers(x)
            with np.errstate(over="ignore", invalid="ignore"):
                found = flow.carried(e)
            if not np.all(np.isfinite(found.z)):
                return math.inf, np.zeros_like(x)
            values, slopes = density(found.z)
            return -float(np.mean(values + found.log_det)), -flow.pulled(e, found, slopes) / len(e)

        before, base = loss(own.numbers)[0], float(np.mean(_log_base(e)))
        begun = LbfgsState.begin(own.numbers)
        state, _ = iterate(loss, begun, self.iterations, memory=self.memory)
        return own.with_numbers(state.at.x), -before - base, -state.at.value - base


def _log_weights(
    density: Density, flow: HostTriangular, e: Float[np.ndarray, "draws k"]
) -> Float[np.ndarray, " draws"]:
    with np.errstate(over="ignore", invalid="ignore"):
        found = flow.carried(e)
        log_weights = found.log_det - _log_base(e)
        fine = np.all(np.isfinite(found.z), axis=1)
        log_weights[fine] += density(found.z[fine])[0]
    return np.where(fine, log_weights, -math.inf)


def _log_base(e: Float[np.ndarray, "draws k"]) -> Float[np.ndarray, " draws"]:
    return -0.5 * np.sum(e**2, axis=1) - 0.5 * e.shape[1] * math.log(2 * math.pi)
