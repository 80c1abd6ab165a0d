"""Models as people bring them, in the languages they write them in, with references by long chains."""

from collections.abc import Callable

from . import annotation, hidden, hierarchies, mixed, pymc_models, regressions, series
from .model import Brought

FOLDERS = (hierarchies, annotation, hidden, series, regressions, mixed, pymc_models)
# Models are made when asked for.
REGISTRY: dict[str, Callable[[], Brought]] = {
    name: make for folder in FOLDERS for name, make in folder.MODELS.items()
}

__all__ = ["REGISTRY", "Brought", "load"]


def load(name: str) -> Brought:
    """The model of this name."""
    if name not in REGISTRY:
        raise ValueError(f"no model {name!r} among those brought; there are {', '.join(REGISTRY)}")
    return REGISTRY[name]()
