"""Which data go to which argument of a user's function: by name, or as `--arg name=columns` says."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

EMPTY = inspect.Parameter.empty
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Bound(NamedTuple):
    """Arguments of a call, parameters that keep their defaults, and what of the data is not used."""

    values: dict[str, Any]
    defaults: list[str]
    unused: list[str]


def bind(
    function: Callable[..., Any], table: Mapping[str, Any], given: Sequence[str], place: str
) -> Bound:
    """The arguments for `function`; a `ValueError` that names those that are missing."""
    parameters = inspect.signature(innermost(function)).parameters
    names = [name for name, one in parameters.items() if one.kind in BY_NAME]
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    values, used = {}, set()
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not (name in names or takes_all):
            raise ValueError(f"--arg {text}: write name=columns; {place} has {_listed(names)}")
        columns = value.split(",")
        values[name] = _value(value, columns, table)
        used.update(columns)
    for name in table if takes_all else names:
        if name in table and name not in values and not (takes_all and name in used):
            values[name] = table[name]
            used.add(name)
    _check_numbers(values)
    missing = [name for name in names if name not in values and parameters[name].default is EMPTY]
    if missing:
        raise ValueError(
            f"{place} needs {', '.join(missing)}; {_there(table)}. Give --data a file with columns or "
            f"arrays of these names, or say where they are: --arg {missing[0]}=column, "
            f"--arg {missing[0]}=column,column for a matrix, --arg {missing[0]}=3 for a number"
        )
    defaults = [name for name in names if name not in values]
    return Bound(values, defaults, [name for name in table if name not in used])


def innermost(function: Any) -> Any:
    """The function inside NumPyro's handlers, which take any arguments."""
    while hasattr(function, "fn") and not inspect.isfunction(function):
        function = function.fn
    return function


def _value(text: str, columns: list[str], table: Mapping[str, Any]) -> Any:
    if all(column in table for column in columns):
        found = [table[column] for column in columns]
        if len(found) == 1:
            return found[0]
        _check_numbers(dict(zip(columns, found, strict=True)))
        return np.stack(found, axis=1)
    try:
        number = json.loads(text)
    except json.JSONDecodeError:
        number = text
    if not isinstance(number, bool | int | float):
        raise ValueError(f"--arg ...={text} is neither a number nor columns; {_there(table)}")
    return number


def _check_numbers(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            example = array.ravel()[0] if array.size else ""
            raise ValueError(f"{name} holds text ({str(example)!r}, ...); give it as numbers or codes")
        if array.dtype.kind == "f" and np.isnan(array).any():
            row = int(np.argwhere(np.isnan(array))[0][0]) if array.ndim else 0
            raise ValueError(f"{name} has no value in row {row + 1}; remove or fill such rows")


def _there(table: Mapping[str, Any]) -> str:
    return f"the data have {', '.join(table)}" if table else "no --data were given"


def _listed(names: Sequence[str]) -> str:
    return f"the parameters {', '.join(names)}" if names else "no parameters"
