"""Specs from TOML: what is not understood is an error that says what would be.

[study]     title, description, module, chapter, timeout, untimed
[defaults]  what every grid starts from: any key of a grid
[[grid]]    tasks x families x (estimators x draws + methods) x reps, and how they are run
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from .._util.checks import unknown, whole
from .checkout import CHECKOUT
from .spec import Grid, RowSpec, Spec

SHIPPED = resources.files("quietgrad.study") / "specs"
RESERVED = ("list", "status", "time")
# Whole numbers of a grid, and the least of each.
COUNTS = {
    "reps": 1,
    "steps": 1,
    "evaluate_every": 1,
    "elbo_draws": 2,
    "variance_every": 0,
    "variance_repeats": 20,
    "lppd_every": 0,
    "lppd_draws": 1,
}


def shipped() -> list[str]:
    """The names of the specs that come with the package."""
    return sorted(f.name.removesuffix(".toml") for f in SHIPPED.iterdir() if f.name.endswith(".toml"))


def load(name: str, checkout: Path = CHECKOUT) -> Spec:
    """The shipped spec of this name, or the one in this `.toml` file.

    Chapters of shipped specs are in the repository, `checkout`, and are left out where it is not there.
    """
    if name in shipped():
        return parse(
            (SHIPPED / f"{name}.toml").read_text(encoding="utf-8"), name, checkout, shipped=True
        )
    path = Path(name)
    if path.suffix != ".toml":
        raise ValueError(unknown("study", name, shipped()) + " Or give the path of a .toml file.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    # The name is also that of the results directory: "..toml" would lead out of it.
    if path.stem in RESERVED or not path.stem.strip("."):
        raise ValueError(f"a study cannot be called {path.stem!r}; rename {path.name}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8: {error}; save it as UTF-8") from error
    return parse(text, path.stem, path.parent)


def parse(text: str, name: str, folder: Path, *, shipped: bool = False) -> Spec:
    """The spec written in `text`; a module or chapter that it names is looked for in `folder`.

    A chapter of a spec that comes with quietgrad may be absent: it is part of the repository only.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"study {name!r} is not valid TOML: {error}") from error
    _known(document, ("study", "defaults", "grid"), f"table of study {name!r}:")
    about = dict(document.get("study", {}))
    _known(about, ("title", "description", "module", "chapter", "timeout", "untimed"), "key of [study]:")
    defaults, blocks = document.get("defaults", {}), document.get("grid", [])
    _known(defaults, [f.name for f in fields(Grid)], "key of [defaults]:")
    if not isinstance(blocks, list) or not blocks:
        raise ValueError(f"study {name!r} has no [[grid]]; it needs at least one")
    for block in blocks:
        _known(block, [f.name for f in fields(Grid)], "key of [[grid]]:")
    module = about.pop("module", None)
    if module is not None:
        module = folder / _text(module, "module")
        if not module.is_file():
            raise FileNotFoundError(f"study {name!r} names the module {module}, which does not exist")
    chapter = about.pop("chapter", None)
    if chapter is not None:
        chapter = folder / _text(chapter, "chapter")
        if not (chapter / "__init__.py").is_file():
            if not shipped:
                raise FileNotFoundError(
                    f"study {name!r} names the chapter {chapter}, which is not a package"
                )
            chapter = None
    return Spec(
        name,
        _text(about.get("title", name), "title"),
        tuple(_grid({**defaults, **block}) for block in blocks),
        description=_text(about.get("description", ""), "description"),
        timeout=_positive(about.get("timeout", Spec.timeout), "timeout"),
        untimed=_flag(about.get("untimed", False), "untimed"),
        module=module,
        chapter=chapter,
    )


def _grid(block: Mapping[str, Any]) -> Grid:
    _known(block, [f.name for f in fields(Grid)], "key of [[grid]]:")
    for name in ("tasks", "families"):
        if name not in block:
            raise ValueError(f"a [[grid]] has no {name}; give them there or in [defaults]")
    values: dict[str, Any] = {
        name: whole(block[name], name, least=least) for name, least in COUNTS.items() if name in block
    }
    for name in ("tasks", "families"):
        values[name] = tuple(_text(item, name) for item in _several(block[name], name))
    for name, kind in (("estimators", "estimator"), ("methods", "method")):
        # An empty list takes back what [defaults] gave.
        if block.get(name):
            values[name] = tuple(_row(item, kind) for item in _several(block[name], name))
    if "estimators" not in values and "methods" not in values:
        raise ValueError("a [[grid]] has no estimators and no methods; give them there or in [defaults]")
    if "draws" in block:
        draws = _several(block["draws"], "draws")
        values["draws"] = tuple(whole(count, "draws", least=1) for count in draws)
    if "group" in block:
        values["group"] = _text(block["group"], "group")
    if "learning_rate" in block:
        values["learning_rate"] = _positive(block["learning_rate"], "learning_rate")
    if "light_evaluation" in block:
        values["light_evaluation"] = _flag(block["light_evaluation"], "light_evaluation")
    grid = Grid(**values)
    for name in ("variance_every", "lppd_every"):
        if getattr(grid, name) % grid.evaluate_every:
            raise ValueError(
                f"{name} must be a multiple of evaluate_every ({grid.evaluate_every}); "
                f"got {getattr(grid, name)}"
            )
    return grid


def _row(given: Any, kind: str) -> RowSpec:
    if isinstance(given, str):
        return RowSpec(given, given)
    if not isinstance(given, dict):
        raise ValueError(f"{kind}s are names or tables with name, label, settings; got {given!r}")
    _known(given, ("name", "label", "settings"), f"key of {kind}s:")
    name, settings = _text(given.get("name"), f"name in {kind}s"), given.get("settings", {})
    if not isinstance(settings, dict):
        raise ValueError(f"settings of {kind} {name!r} must be a table; got {settings!r}")
    if kind == "estimator" and "draws" in settings:
        raise ValueError(f"give the draws of estimator {name!r} in the grid, not in its settings")
    usual = " ".join([name, *(f"{key} {value}" for key, value in settings.items())])
    return RowSpec(name, _text(given.get("label", usual), "label"), dict(settings))


def _known(given: Any, accepted: Sequence[str], kind: str) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"expected a table with {', '.join(accepted)}; got {given!r}")
    for name in given:
        if name not in accepted:
            raise ValueError(unknown(kind, name, accepted))


def _several(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list with something in it; got {value!r}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text; got {value!r}")
    return value


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} must be a positive number; got {value!r}")
    return float(value)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; got {value!r}")
    return value
