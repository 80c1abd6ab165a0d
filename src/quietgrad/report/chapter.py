"""A chapter of a report that a study brings along: claims judged by its records, and figures of its own.

A chapter is a Python package outside quietgrad with a function `chapter(study) -> Chapter`. The spec of
a study names it (`chapter = "folder"`, below the folder of the spec). The studies that come with
quietgrad name the paper's, which is in the repository and not in an installed package: without it the
page has no such chapter. No jax.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..study.checkout import CHECKOUT
from ..study.claim import Claim
from .figures.plan import Plan
from .stored_study import StoredStudy


@dataclass(frozen=True)
class Chapter:
    """What a study's own package adds to its page.

    `title` heads the claims, `source` is the address of the text that they are from, `summary` is a
    sentence about the verdicts for the top of the page, and `figures` are drawn after the report's own.
    """

    title: str = ""
    source: str = ""
    summary: str = ""
    claims: Sequence[Claim] = ()
    figures: Sequence[Callable[[StoredStudy], list[Plan]]] = ()


def chapter_of(study: StoredStudy, package: Path | None = None) -> Chapter:
    """The chapter in `package`, or the one that the study's specs name, or an empty one.

    What a stored study names is looked for in the checkout only: the report of a folder from elsewhere
    runs no code of that folder.
    """
    if package is None:
        package = next((path for path in map(in_checkout, _named(study)) if path is not None), None)
        if package is None:
            return Chapter()
    made = import_package(package).chapter(study)
    if not isinstance(made, Chapter):
        raise TypeError(f"chapter() in {package} must return a Chapter; got {type(made).__name__}")
    return made


def in_checkout(name: str) -> Path | None:
    """The package of this name below the repository, or None if there is none."""
    path = (CHECKOUT / name).resolve()
    inside = path.is_relative_to(CHECKOUT.resolve()) and (CHECKOUT / "pyproject.toml").is_file()
    return path if inside and (path / "__init__.py").is_file() else None


def import_package(folder: Path) -> Any:
    """Import the package in `folder`, which need not be on the path; once for each folder."""
    folder = folder.resolve()
    name = f"quietgrad_chapter_{folder.name}"
    known = sys.modules.get(name)
    if isinstance(known, ModuleType) and known.__file__ == str(folder / "__init__.py"):
        return known
    init = folder / "__init__.py"
    if not init.is_file():
        raise FileNotFoundError(f"{folder} is not a package: it has no __init__.py")
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(
            f"importing the chapter {folder} failed: {type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(module, "chapter", None)):
        raise ValueError(f"{folder} defines no function chapter(study)")
    return module


def _named(study: StoredStudy) -> list[str]:
    return [str(spec["chapter"]) for spec in study.specs if spec.get("chapter")]
