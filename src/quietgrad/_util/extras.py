"""Optional packages: what to install when one is not there, and the adapters that need them."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import optional packages inside this: a missing one is an `ImportError` that says what to install.

    with needs_extra("study", "a study"):
        import pyarrow
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", __name__.partition(".")[0]):
            raise
        raise ImportError(
            f"{what} needs {missing}: pip install 'quietgrad[{extra}]' brings it, and in a checkout "
            f"pip install '.[{extra}]'"
        ) from error


def adapter(name: str) -> Any:
    """The module in `adapters` that knows another package.

    Adapters stand above targets and results, which they make and read. By name, and when it is asked
    for, one can be had from below without turning the direction of imports around.
    """
    return importlib.import_module(f"{__name__.partition('.')[0]}.adapters.{name}")
