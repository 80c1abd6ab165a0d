"""Precisions made positive definite, and solves with them, whatever the scales of coordinates."""

import numpy as np
from jaxtyping import Float

# Eigenvalues of a scaled precision below this share of the largest are noise.
FLOOR = 1e-7


def positive(
    precision: Float[np.ndarray, "dim dim"], floor: float = FLOOR
) -> Float[np.ndarray, "dim dim"]:
    """The nearest positive definite matrix: scaled to a unit diagonal, eigenvalues made positive."""
    diagonal = np.abs(np.diagonal(precision))
    # Coordinates may differ by many powers of ten; only one without any curvature needs a scale.
    scale = np.sqrt(np.where(diagonal > 0, diagonal, floor * np.min(diagonal[diagonal > 0])))
    scaled = precision / np.outer(scale, scale)
    try:
        np.linalg.cholesky(scaled - floor * np.eye(len(scale)))
        return precision
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(scaled)
    values = np.maximum(np.abs(values), floor * np.abs(values).max())
    return np.outer(scale, scale) * ((vectors * values) @ vectors.T)


def solve(precision: Float[np.ndarray, "dim dim"], vector: Float[np.ndarray, " dim"]) -> np.ndarray:
    """P^-1 v with rows and columns scaled first: coordinates may differ by many powers of ten."""
    scale = np.sqrt(np.diagonal(precision))
    return np.linalg.solve(precision / np.outer(scale, scale), vector / scale) / scale
