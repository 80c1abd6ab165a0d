"""Where the repository is, if this is a checkout of it: an installed package has none beside it."""

from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
