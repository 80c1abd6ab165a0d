"""A name in a Python file of the user, and errors that say where in the file they happened."""

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def load_value(place: str) -> tuple[Any, Path]:
    """What `file.py:name` names, and the file."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not file or not name or not path.is_file():
        raise ValueError(
            f"{place!r} does not name a model: give a Python file and a name in it, "
            "as in my_model.py:target"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path.name} is not a Python file; its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # For good: a model may import its neighbours when it runs.
        sys.path.insert(0, folder)
    with blamed(path, f"{path.name} could not be loaded"):
        spec.loader.exec_module(module)
    if not hasattr(module, name):
        own = [n for n, value in vars(module).items() if _own(value, module.__name__, n)]
        found = f"; there are {', '.join(own)}" if own else ""
        raise ValueError(f"{path.name} has no {name!r}{found}")
    return getattr(module, name), path


@contextmanager
def blamed(path: Path, what: str) -> Iterator[None]:
    """Turn what a user's code raises into a `ValueError` with the line of the file that raised it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SyntaxError):
            line = error.lineno
        else:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [f.lineno for f in frames if Path(f.filename).resolve() == path.resolve()]
            line = lines[-1] if lines else None
        where = "" if line is None else f" (line {line})"
        raise ValueError(f"{what}{where}: {type(error).__name__}: {error}") from error


def _own(value: Any, module: str, name: str) -> bool:
    """Whether a name was made in the file, and not imported or hidden."""
    if name.startswith("_") or isinstance(value, type(sys)):
        return False
    return getattr(value, "__module__", None) == module or not hasattr(value, "__name__")
