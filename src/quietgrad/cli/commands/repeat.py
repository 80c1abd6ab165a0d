"""The Python code that repeats a fit of the command, beside its results."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .models import Model

ARGUMENTS = "arguments.npz"
# A copy of the result that the fit started from.
START = "start.quietgrad"
START_CODE = f"qg.load(Path(__file__).resolve().parent / {START!r}).q"
DOCSTRING = '"""Repeats the fit whose results are in this folder.\n\nThe command was: {command}\n"""\n'


class Call(NamedTuple):
    """A call of `fit`, as Python code where it is not a number."""

    family: str
    method: str
    batch_size: int | None
    seconds: float | None
    restarts: int
    seed: int
    double: bool
    refine: bool = False


def command_line() -> str:
    """The command that is running, to be typed again."""
    return shlex.join(["quietgrad", *sys.argv[1:]])


def write_repeat(folder: Path, final: Path, model: Model, name: str, call: Call, command: str) -> None:
    """Write repeat.py and the arguments it loads into `folder`, which will be called `final`."""
    values = model.bound.values
    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    numbers = {key: value for key, value in values.items() if key not in arrays}
    if arrays:
        np.savez(folder / ARGUMENTS, allow_pickle=False, **arrays)
    text = DOCSTRING.format(command=command.replace("\\", "\\\\").replace('"""', "'''"))
    text += _imports(model, call)
    text += f'\njax.config.update("jax_enable_x64", {call.double})\n'
    if model.file is not None:
        text += _found(model.file, final, name, arrays, numbers)
    settings = {
        "method": call.method,
        "batch_size": call.batch_size,
        "seconds": call.seconds,
        "restarts": call.restarts if call.restarts > 1 else None,
        "refine": call.refine or None,
    }
    given = "".join(f"    {key}={value},\n" for key, value in settings.items() if value is not None)
    text += (
        f"\ntarget = {model.code}\n"
        f"key = jax.random.key({call.seed})\n"
        f"result = qg.fit(\n    target,\n    {call.family},\n{given}    key=key,\n)\n"
        "print(result.explain())\n"
        "print(result.diagnose())\n"
    )
    (folder / "repeat.py").write_text(text)


def _imports(model: Model, call: Call) -> str:
    lines = ["import jax"]
    if any(isinstance(value, np.ndarray) for value in model.bound.values.values()):
        lines.append("import numpy as np")
    if "optax." in call.method:
        lines.append("import optax")
    lines.append("import quietgrad as qg")
    if model.file is None and call.family == START_CODE:
        return "\nfrom pathlib import Path\n\n" + "\n".join(lines) + "\n"
    if model.file is None:
        return "\n" + "\n".join(lines) + "\n"
    return "\nimport runpy\nimport sys\nfrom pathlib import Path\n\n" + "\n".join(lines) + "\n"


def _found(file: Path, final: Path, name: str, arrays: Any, numbers: Any) -> str:
    """Load the model's file from where it is, seen from the folder of the results."""
    relative = Path(os.path.relpath(file.resolve(), final.resolve())).as_posix()
    text = (
        "here = Path(__file__).resolve().parent\n"
        f"file = (here / {relative!r}).resolve()\n"
        "sys.path.insert(0, str(file.parent))\n"
        f"found = runpy.run_path(str(file))[{name.rpartition(':')[2]!r}]\n"
    )
    if arrays:
        # Keywords of the model: the arrays as it had them, and numbers.
        text += f"arguments = dict(np.load(here / {ARGUMENTS!r}))\n"
    else:
        text += "arguments = {}\n"
    return text + "".join(f"arguments[{key!r}] = {value!r}\n" for key, value in numbers.items())
