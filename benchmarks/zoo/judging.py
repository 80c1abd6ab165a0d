"""What counts as right, and what as saying so.

An answer is right if every posterior mean is within 0.25 posterior standard deviations of the reference.
The answer is what the tool tells its user to take: q, or its corrected draws where the verdict asks for
those. A wrong answer is silent if it is called trustworthy, or worth correcting. Scales do not enter
there: a mean-field fit with right means and scales far too small is right, and should not be trusted.
What is called trustworthy is held against means and scales.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

RIGHT = 0.25
RIGHT_STD = 1.3
TRUST, CORRECTED, DO_NOT_TRUST = "trust", "use the corrected draws", "do not trust"
CLASSES = ("right", "says so", "silent")


def errors(
    reference: dict[str, Any], mean: Float[np.ndarray, " dim"], std: Float[np.ndarray, " dim"]
) -> dict[str, float | None]:
    """The largest error of a mean in posterior sds, and the extreme ratios of sds."""
    if "mean" not in reference:
        return {"mean_error": None, "least_std_ratio": None, "most_std_ratio": None}
    true, scale = np.asarray(reference["mean"]), np.asarray(reference["std"])
    with np.errstate(all="ignore"):
        off, ratio = np.abs(np.asarray(mean) - true) / scale, np.asarray(std) / scale
    return {
        "mean_error": _finite(np.max(off)),
        "least_std_ratio": _finite(np.min(ratio)),
        "most_std_ratio": _finite(np.max(ratio)),
    }


def _finite(value: Any) -> float:
    """A float for JSON: what is not a number is as wrong as can be."""
    value = float(value)
    return value if math.isfinite(value) else 1e300


def classify(row: dict[str, Any], reference: dict[str, Any]) -> str:
    """One of `CLASSES` for a stored row."""
    verdict = row["verdict"]
    if reference["must_warn"] is not None and verdict == TRUST and not fine(row):
        return "silent"
    error = row["corrected_error"] if verdict == CORRECTED else row["mean_error"]
    if error is not None and error <= RIGHT:
        return "right"
    return "says so" if verdict == DO_NOT_TRUST else "silent"


def fine(row: dict[str, Any]) -> bool:
    """Whether all means and all scales of q are right; never where the posterior has none."""
    if row["mean_error"] is None:
        return False
    spread = max(row["most_std_ratio"], 1 / max(row["least_std_ratio"], 1e-300))
    return row["mean_error"] <= RIGHT and spread <= RIGHT_STD


def trust_is_wrong(row: dict[str, Any]) -> bool:
    """Whether a row says `trust` of means or scales that are off, or do not exist."""
    return row["verdict"] == TRUST and not fine(row)


def needless_warning(row: dict[str, Any]) -> bool:
    """Whether a right answer with right scales is called untrustworthy."""
    return fine(row) and row["verdict"] == DO_NOT_TRUST
