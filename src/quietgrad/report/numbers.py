"""Numbers, amounts and spans of time as a reader wants to see them."""

import math
from collections.abc import Sequence


def number(value: float | None, digits: int = 3) -> str:
    """A number for a sentence or a table: three digits, no exponent for common sizes."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{places}f}".replace("-", "−")


def with_error(value: float, error: float | None, digits: int = 3) -> str:
    """A number with one digit of its standard error, if that is known."""
    told = number(value, digits)
    return told if error is None else f"{told} ± {number(error, 1)}"


def nats(value: float) -> str:
    """An ELBO: two decimals, or none for the huge ones of an early end."""
    if not math.isfinite(value):
        return number(value)
    return f"{value:,.{2 if abs(value) < 1e5 else 0}f}".replace("-", "−")


def count(amount: int, noun: str) -> str:
    """An amount of something, with the plural where it belongs."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def duration(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{number(seconds)} seconds"


def times(factors: Sequence[float]) -> str:
    """Factors in a sentence: "14 times", or "2.1 to 14 times"."""
    low, high = (f"{f(factors):.{1 if f(factors) < 9.95 else 0}f}" for f in (min, max))
    return f"{low} times" if low == high else f"{low} to {high} times"
