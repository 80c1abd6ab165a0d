"""The mass of the posterior around a place that q may leave out: a Gaussian fitted there, and weights.

Gradients at draws of a Gaussian g = N(m, R R') are regressed on the draws, R' grad f ~ b - A u, and g
moves to m + R A^-1 b with the covariance R A^-1 R': Newton steps on averages, exact for a Gaussian
posterior. Draws of g then give the mass by importance, int p 1{p / (Z q) > c} = E_g[p / g 1{...}], of
those places only where q has less than 1/c of its share: where q looks, nothing is missed. Where g's
weights have no mean, as far as their tail tells, its ELBO there is compared with that of q instead.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from ..evaluation.points import Points, sobol_pairs
from ..families import AbstractFamily
from ..families.bases import Normal
from .draws import log_prob_at
from .metric import Metric
from .psis import smooth
from .settings import DEFAULT, Diagnostics


class Local(NamedTuple):
    """A Gaussian at a place that q leaves out, and the log of the mass there relative to Z of q.

    `khat` is the shape of the tail of its own weights: beyond their limit the mass may be larger.
    """

    center: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]
    log_mass: float
    khat: float

    def has(self, place: Float[np.ndarray, " dim"]) -> bool:
        """Whether a place is among the Gaussian's draws: their squared distances are dim, give or take
        sqrt(2 dim)."""
        dim = len(place)
        square = np.sum(np.linalg.solve(self.root, place - self.center) ** 2)
        return bool(square < dim + 4 * math.sqrt(2 * dim))

    def log_prob(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """The Gaussian's log density."""
        e = np.linalg.solve(self.root, (z - self.center).T)
        constant = 0.5 * len(self.center) * math.log(2 * math.pi) + np.linalg.slogdet(self.root)[1]
        return -0.5 * np.sum(e**2, axis=0) - constant


def mass_around(
    points: Points,
    q: AbstractFamily,
    evidence: tuple[float, float],
    place: Float[np.ndarray, " dim"],
    metric: Metric,
    rng: np.random.Generator,
    settings: Diagnostics = DEFAULT,
    usual: float = -math.inf,
) -> Local | None:
    """The mass that q leaves out around a place; None if no Gaussian can be fitted there.

    `evidence` is log Z by the weights of q's draws, and the ELBO by them. `usual` is what log p / (Z q)
    may be where q looks: of a poor q in many coordinates, a lot.
    """
    root, (log_z, elbo) = metric.root if metric.dense else np.diag(metric.root), evidence
    fitted = gaussian_around(points, place, root, rng, settings)
    if fitted is None:
        return None
    dim, (place, root) = place.size, fitted
    with np.errstate(all="ignore"):
        e = sobol_pairs(Normal(), settings.local_pairs, dim, rng)
        z = place + e @ root.T
        values = points(z)[0]
        log_g = -0.5 * np.sum(e**2, axis=1) - 0.5 * dim * math.log(2 * math.pi)
        log_g = log_g - np.linalg.slogdet(root)[1]
        least = max(math.log(settings.share_left), usual)
        left_out = values - log_prob_at(q, z) - log_z > least
        log_weights = np.where(np.isfinite(values), values - log_g, -math.inf)
        missed = log_weights[left_out & np.isfinite(log_weights)]
    khat = smooth(log_weights).khat
    if not missed.size:
        return Local(place, root, -math.inf, khat)
    if khat < settings.no_mean:
        mass = float(np.asarray(scipy.special.logsumexp(missed))) - math.log(len(z)) - log_z
    else:
        mass = float(np.mean(missed)) + math.log(missed.size / len(z)) - elbo
    return Local(place, root, mass, khat)


def gaussian_around(
    points: Points,
    place: Float[np.ndarray, " dim"],
    root: Float[np.ndarray, "dim dim"],
    rng: np.random.Generator,
    settings: Diagnostics = DEFAULT,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]] | None:
    """The center and a root of the covariance after some Newton steps from a first guess."""
    pairs = max(settings.pairs, settings.per_coordinate * place.size) // 2
    with np.errstate(all="ignore"):
        for _ in range(settings.local_steps):
            moved = _step(points, place, root, sobol_pairs(Normal(), pairs, place.size, rng), settings)
            if moved is None:
                return None
            away = float(np.linalg.norm(np.linalg.solve(root, moved[0] - place)))
            place, root = moved
            if away < settings.local_rest:
                break
    return place, root


def _step(
    points: Points,
    center: Float[np.ndarray, " dim"],
    root: Float[np.ndarray, "dim dim"],
    u: Float[np.ndarray, "draws dim"],
    settings: Diagnostics,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]] | None:
    """A Newton step on gradients at draws; None where they are not finite."""
    slope = points(center + u @ root.T)[1] @ root
    ok = np.all(np.isfinite(slope), axis=1)
    if np.count_nonzero(ok) < 2 * u.shape[1] + 2:
        return None
    design = np.column_stack([np.ones(np.count_nonzero(ok)), u[ok]])
    fitted, *_ = np.linalg.lstsq(design, slope[ok], rcond=None)
    if not np.all(np.isfinite(fitted)):
        return None
    values, vectors = np.linalg.eigh(-0.5 * (fitted[1:] + fitted[1:].T))
    values = np.clip(values, 1 / settings.local_change, settings.local_change)
    step = vectors @ ((vectors.T @ fitted[0]) / values)
    step = step * min(1.0, settings.local_move / max(float(np.linalg.norm(step)), 1e-300))
    return center + root @ step, root @ (vectors / np.sqrt(values)) @ vectors.T
