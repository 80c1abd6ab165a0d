"""Curvature in the coordinates of a basis: made positive definite there, and taken back.

With minus the Hessian W = -B'HB in the coordinates of a root B of the covariance, eigenvalues are near
one around an optimum, whatever the scales and correlations of the target. So what counts as noise, and
what to do about negative curvature, does not depend on the coordinates either.
"""

import numpy as np
import scipy.linalg
from jaxtyping import Float

# Eigenvalues below this share of the largest are noise.
FLOOR = 1e-7


def make_positive_definite(curvature: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The nearest positive definite matrix: eigenvalues take their absolute values."""
    least = FLOOR * np.max(np.abs(np.diagonal(curvature)))
    try:
        np.linalg.cholesky(curvature - least * np.eye(len(curvature)))
        return curvature
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(np.abs(values), FLOOR * np.abs(values).max())
    return (vectors * values) @ vectors.T


def newton_step(
    basis: Float[np.ndarray, "dim dim"],
    curvature: Float[np.ndarray, "dim dim"],
    gradient: Float[np.ndarray, " dim"],
) -> Float[np.ndarray, " dim"]:
    """B W^-1 B'g."""
    return basis @ np.linalg.solve(curvature, basis.T @ gradient)


def precision_from_basis(
    basis: Float[np.ndarray, "dim dim"], curvature: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "dim dim"]:
    """B^-T W B^-1, for a triangular basis: the precision in the target's own coordinates."""
    left = scipy.linalg.solve_triangular(basis, curvature, lower=True, trans=1)
    whole = scipy.linalg.solve_triangular(basis, left.T, lower=True, trans=1)
    return 0.5 * (whole + whole.T)


def cholesky_from_basis(
    basis: Float[np.ndarray, "dim dim"], curvature: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "dim dim"]:
    """The lower triangular root of B W^-1 B', the covariance that goes with the curvature."""
    upper = np.linalg.cholesky(curvature)
    turned = scipy.linalg.solve_triangular(upper, basis.T, lower=True)
    root = np.linalg.qr(turned)[1].T
    return root * np.sign(np.diagonal(root))
