"""Two-sample distances with errors: sliced Wasserstein and the maximum mean discrepancy."""

import numpy as np

DIRECTIONS = 128
PARTS = 4


def sliced_wasserstein(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> float:
    """Root mean squared Wasserstein-2 distance of projections, for samples of equal size."""
    directions = rng.normal(size=(x.shape[1], DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    gap = np.sort(x @ directions, axis=0) - np.sort(y @ directions, axis=0)
    return float(np.sqrt(np.mean(gap**2)))


def mmd(x: np.ndarray, y: np.ndarray) -> float:
    """The root of the unbiased squared discrepancy, Gaussian kernel of median width; at least 0."""

    def squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sum(a**2, 1)[:, None] + np.sum(b**2, 1)[None] - 2 * a @ b.T

    half = len(y) // 2
    width = np.median(squares(y[:half], y[half:]))
    kxx, kyy, kxy = (np.exp(-squares(a, b) / width) for a, b in ((x, x), (y, y), (x, y)))
    n, m = len(x), len(y)
    square = (kxx.sum() - n) / (n * (n - 1)) + (kyy.sum() - m) / (m * (m - 1)) - 2 * kxy.mean()
    return float(np.sqrt(max(square, 0.0)))


def distances(draws: np.ndarray, reference: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Both, in standard deviations of the reference, as means over parts with their standard errors."""
    rng = np.random.default_rng(seed)
    center, scale = reference.mean(0), reference.std(0)
    x, y = (draws - center) / scale, (reference - center) / scale
    size = min(len(x), len(y)) // PARTS
    parts = [slice(i * size, (i + 1) * size) for i in range(PARTS)]
    sliced = [sliced_wasserstein(x[p], y[p], rng) for p in parts]
    discrepancy = [mmd(x[p], y[p]) for p in parts]
    error = np.sqrt(PARTS)
    return {
        "sliced": float(np.mean(sliced)),
        "sliced_error": float(np.std(sliced, ddof=1) / error),
        "mmd": float(np.mean(discrepancy)),
        "mmd_error": float(np.std(discrepancy, ddof=1) / error),
    }
