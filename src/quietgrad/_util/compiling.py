"""How programs of the package are compiled: `program` in place of `jax.jit`, and what all of them share.

Of jaxlib 0.10.2 and 0.11.0, XLA on the CPU hands sums of products, and what is done with them, to
another library, and some of these fusions are wrong: numbers from the 32,768th on are computed from
those of the first (jax-ml/jax#39103), and sums over seven and more axes end the process (#39257).
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jaxlib
from jax._src.core import trace_state_clean

LEVEL = "xla_backend_optimization_level"
FUSIONS = "xla_cpu_experimental_ynn_fusion_type"
# What is left of these fusions, by the version of jaxlib that it begins with. For 0.10.2 single products
# of matrices are right, as fast, and sooner compiled; for 0.11 none is known to work; later versions may
# not know the option.
LEFT: tuple[tuple[tuple[int, ...], str | None], ...] = (
    ((0, 12), None),
    ((0, 11), ""),
    ((0, 10, 2), "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),
    ((0,), None),
)


def fusions_left(version: str) -> str | None:
    """The value of the option for a version of jaxlib; None to leave it out."""
    number = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    return next(value for since, value in LEFT if number >= since)


def jit_options(level: int | None = None) -> dict[str, Any]:
    """Arguments of `jax.jit` for a level of optimisation; what XLA_FLAGS sets is left."""
    options: dict[str, Any] = {}
    if (left := fusions_left(jaxlib.version.__version__)) is not None:
        options[FUSIONS] = left
    if level is not None:
        options[LEVEL] = level
        # XLA's newer emitters of fused loops for processors take half as long again to compile as the
        # older ones, and what they make is hardly faster. Named as in jax 0.10; a later XLA may not
        # know it.
        if jax.__version__.startswith("0.10."):
            options["xla_cpu_use_fusion_emitters"] = False
    given = os.environ.get("XLA_FLAGS", "")
    options = {name: value for name, value in options.items() if name not in given}
    return {"compiler_options": options} if options else {}


# For programs that compile for longer than they run, as those of a first fit do: level 1 compiles in
# three quarters to nine tenths of the default's time, and what it makes is as fast
# (`benchmarks/levels.py`).
SOONER = 1
# For programs that run once or twice: level 0 compiles in about half of the time, and what it makes
# takes two to four times as long.
ONCE = 0


def program(function: Callable[..., Any] | None = None, *, level: int | None = None) -> Any:
    """`eqx.filter_jit` with the options above; within another program it is a part of that."""
    if function is None:
        return functools.partial(program, level=level)
    options = jit_options(level)
    alone = part = eqx.filter_jit(function)  # noqa: TID251
    if options:
        alone = eqx.filter_jit(function, **options)  # noqa: TID251

    @functools.wraps(function)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        # Options belong to a program as a whole: jax refuses them within another.
        return (alone if trace_state_clean() else part)(*args, **kwargs)

    return compiled
