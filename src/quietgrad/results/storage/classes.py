"""Classes by name: those of this package are found wherever they have moved to since.

A class is written as "module:qualified name". One of another package must have been imported by whoever
reads it: a file does not decide what is imported. Modules of this package are imported as needed.
"""

import dataclasses
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGE = __name__.partition(".")[0]
# Classes that have another name by now: the old qualified name and the new one.
RENAMED: dict[str, str] = {}


def name_of(kind: type, what: str, without: str) -> str:
    """The name of a class that another process can find it by."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _at(name) is not kind:
        raise TypeError(
            f"{what} cannot hold a {kind.__qualname__}: its class has to stand at the top of a module "
            f"under its own name, so that the next process finds it; move it there ({name}), {without}"
        )
    return name


def class_of(name: str, above: type, what: str, fields: Sequence[str] | None = None) -> Any:
    """The class of this name, which must be a kind of `above`; `fields` tell namesakes apart."""
    found = _at(name)
    if found is None and name.startswith((f"{PACKAGE}.", f"{PACKAGE}:")):
        found = _moved(name, fields)
    if not isinstance(found, type) or not issubclass(found, above):
        raise ValueError(
            f"{what} needs {name}, which this program has not imported; import it, or use the version "
            "of its package that the file was written with"
        )
    if above is object and not dataclasses.is_dataclass(found):
        raise ValueError(f"{what} names {name}, which is no module or dataclass")
    return found


def _at(name: str) -> Any:
    """What stands in this place, of what has been imported."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _moved(name: str, fields: Sequence[str] | None) -> Any:
    """A class of this package: where it was, if its module is not imported yet, or where it is now."""
    module, _, path = name.partition(":")
    path = RENAMED.get(path, path)
    modules = _modules_with(path.partition(".")[0])
    if module in modules:
        importlib.import_module(module)
        return _at(f"{module}:{path}")
    found = [kind for each in modules if isinstance(kind := _after_import(each, path), type)]
    # Namesakes: the one that has the same fields, or whose file has the same name.
    alike = [kind for kind in found if fields is not None and _fields(kind) == set(fields)]
    beside = [kind for kind in found if kind.__module__.rpartition(".")[2] == module.rpartition(".")[2]]
    return next((some[0] for some in (alike, beside, found) if len(some) == 1), None)


def _after_import(module: str, path: str) -> Any:
    try:
        importlib.import_module(module)
    except ImportError:
        # An adapter of something that is not installed: not where a class moved that was not there.
        return None
    return _at(f"{module}:{path}")


def _modules_with(name: str) -> list[str]:
    """Modules of this package whose source has such a class; nothing is imported to find them."""
    root = Path(__file__).resolve().parents[2]
    pattern = re.compile(rf"^class {re.escape(name)}\b", re.MULTILINE)
    names = []
    for path in sorted(root.rglob("*.py")):
        if path.stem != "__main__" and pattern.search(path.read_text(encoding="utf-8")):
            parts = path.relative_to(root).with_suffix("").parts
            names.append(".".join([PACKAGE, *(part for part in parts if part != "__init__")]))
    return names


def _fields(kind: type) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    return set(getattr(kind, "_fields", ()))
