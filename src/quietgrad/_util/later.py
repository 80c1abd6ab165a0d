"""What is imported when it is first used, because most fits do without it.

Imports are a good part of a first fit. One that ends with Newton steps takes no stochastic gradient, so
that it needs neither optax nor the estimators with all their parts. Sparse matrices are for few models.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any


class Later(ModuleType):
    """A module that is imported when an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def names_of(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A package's `__getattr__`, which imports its names from the modules that have them."""
    home = {name: module for module, names in homes.items() for name in names}

    def found(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    return found


if TYPE_CHECKING:
    import optax
    from scipy import sparse
    from scipy.sparse import csgraph
else:
    optax = Later("optax")
    sparse = Later("scipy.sparse")
    csgraph = Later("scipy.sparse.csgraph")

__all__ = ["csgraph", "names_of", "optax", "sparse"]
