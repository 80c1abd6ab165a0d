"""A bug of the second list in one call: its name is made of its symbol and what it breaks."""

from ..mutant import Mutant


def bug(symbol: str, old: str, new: str, breaks: str, tests: str, explained: str = "") -> Mutant:
    """See `Mutant`."""
    return Mutant(f"{symbol}: {breaks}", symbol, old, new, breaks, tests, explained)
