"""The factor-plus-diagonal Gaussian that is closest to a Gaussian of known precision, on the host.

Closest in the ELBO: with Sigma = D + F'F (one row of F for each factor) it maximises
  (log det Sigma - tr(P Sigma)) / 2.
For D = I the best F is spectral: along an eigenvector of P with eigenvalue l < 1, one plus the squared
length is 1/l. From there quasi-Newton steps settle D and F together.
"""

import numpy as np
import scipy.linalg
from jaxtyping import Float

from .._numerics.lbfgs import minimise

ITERATIONS = 20
# Gain in nats that ends the iteration.
GAIN = 1e-3


def best_factors(
    precision: Float[np.ndarray, "dim dim"],
    log_std: Float[np.ndarray, " dim"],
    factor: Float[np.ndarray, "rank dim"],
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "rank dim"]]:
    """log of the diagonal's root, and the factors; the given ones are a start that may be better."""
    dim, rank = len(log_std), len(factor)
    scale = np.sqrt(np.diagonal(precision))
    unit = precision / np.outer(scale, scale)
    given = np.concatenate([log_std + np.log(scale), (factor * scale).ravel()])
    starts = [given, _spectral(unit, rank)]

    def loss(x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
        return _loss(unit, x, dim, rank)

    best = min(starts, key=lambda x: loss(x)[0])
    before = loss(best)[0]
    for number, at in enumerate(minimise(loss, best, memory=20), start=1):
        best = at.x
        if number >= ITERATIONS or before - at.value < GAIN:
            break
        before = at.value
    return best[:dim] - np.log(scale), best[dim:].reshape(rank, dim) / scale


def _spectral(unit: Float[np.ndarray, "dim dim"], rank: int) -> Float[np.ndarray, " n"]:
    """D = I and the best F for it; factors without use start small, as zero would be stationary."""
    dim = len(unit)
    few = min(rank, dim)
    values, vectors = scipy.linalg.eigh(unit, subset_by_index=(0, few - 1))
    lengths = np.sqrt(np.maximum(1 / np.maximum(values, 1e-12) - 1, 1e-4))
    factor = np.zeros((rank, dim))
    factor[:few] = (vectors * lengths).T
    return np.concatenate([np.zeros(dim), factor.ravel()])


def _loss(
    unit: Float[np.ndarray, "dim dim"], x: Float[np.ndarray, " n"], dim: int, rank: int
) -> tuple[float, Float[np.ndarray, " n"]]:
    """Minus the objective above, and its gradient."""
    log_std, factor = x[:dim], x[dim:].reshape(rank, dim)
    inverse = np.exp(-2 * log_std)
    # With A = F D^-1/2 and M = I + A A' = C C': Sigma^-1 = D^-1 - D^-1/2 A' M^-1 A D^-1/2.
    scaled = factor * np.exp(-log_std)
    root = np.linalg.cholesky(np.eye(rank) + scaled @ scaled.T)
    solved = scipy.linalg.solve_triangular(root, scaled, lower=True)
    products = factor @ unit
    log_det = 2 * np.sum(log_std) + 2 * np.sum(np.log(np.diagonal(root)))
    trace = np.sum(np.exp(2 * log_std) * np.diagonal(unit)) + np.sum(products * factor)
    own = inverse * (1 - np.sum(solved**2, axis=0))
    # Sigma^-1 F' = D^-1/2 A' M^-1, by the same solve.
    pulled = scipy.linalg.solve_triangular(root.T, solved, lower=False) * np.exp(-log_std)
    grad_log_std = np.exp(2 * log_std) * (np.diagonal(unit) - own)
    return float(0.5 * (trace - log_det)), np.concatenate([grad_log_std, (products - pulled).ravel()])
