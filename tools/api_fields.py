"""An extension of griffe for the API pages: Equinox modules are dataclasses, whose fields are arguments.

griffe reads code without running it and knows a dataclass by its decorator only.
"""

import dataclasses
import importlib
from typing import Any

import griffe


class ModuleFields(griffe.Extension):
    """Marks every dataclass of the package as one, and `eqx.field` as `dataclasses.field`."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called where all members of a class have been read."""
        try:
            found = getattr(importlib.import_module(cls.module.path), cls.name, None)
        except ImportError:
            # The package of an extra is not installed.
            return
        if "__init__" in cls.members or not (
            isinstance(found, type) and dataclasses.is_dataclass(found)
        ):
            return
        cls.decorators.append(griffe.Decorator(_name("dataclass"), lineno=None, endlineno=None))
        for member in cls.members.values():
            value = getattr(member, "value", None)
            if isinstance(value, griffe.ExprCall) and value.canonical_path == "equinox.field":
                value.function = _name("field")


def _name(name: str) -> griffe.ExprName:
    return griffe.ExprName(name, parent=griffe.ExprName("dataclasses"))
