"""NUTS of other packages, behind one contract: warm up many chains at once, then advance them."""

from typing import Any

from ..._util.extras import adapter
from .engine import AbstractEngine, Moves

# By name: the package that each needs, and the extra that brings it. The first that is there is used.
ENGINES = {"numpyro": ("numpyro", "numpyro"), "blackjax": ("blackjax", "peers")}


def engine(name: str | None = None) -> AbstractEngine:
    """The engine of this name, or the first whose package is installed."""
    if name is not None and name not in ENGINES:
        raise ValueError(f"no sampler {name!r}; there are {', '.join(ENGINES)}")
    for one in ENGINES if name is None else (name,):
        try:
            return _made(one)
        except ImportError:
            continue
    wanted = ENGINES if name is None else {name: ENGINES[name]}
    ways = " or ".join(f"pip install 'quietgrad[{extra}]'" for _, extra in wanted.values())
    packages = " or ".join(package for package, _ in wanted.values())
    raise ImportError(f"chains need NUTS, which is not installed: {packages}; {ways} brings it")


def _made(name: str) -> Any:
    return adapter(f"nuts.with_{name}").Engine()


__all__ = ["ENGINES", "AbstractEngine", "Moves", "engine"]
