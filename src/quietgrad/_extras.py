"""What to install when an optional package is not there."""

from collections.abc import Iterator
from contextlib import contextmanager


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
            f"{what} needs {missing}: pip install 'quietgrad[{extra}]' brings it"
        ) from error
