"""Which files of the library two calls pass through: `python -m tools.trace_files`.

A file counts if one of its functions is called; imports and module-level code do not. The first call
is a full-rank fit by `auto`. The second is one step of `Sgd` with QuadCV, `Job.step` of
`solvers/steps.py` and what it calls while it is compiled.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr

import quietgrad as qg
from quietgrad.solvers.steps import Job

SOURCE = Path(qg.__file__).parent


def trace(call: Callable[[], object], inside: tuple[str, str] | None = None) -> Counter[str]:
    """Calls of functions of each file, in the order of the first; only below the function `inside`."""
    seen: Counter[str] = Counter()
    depth = 0

    def profile(frame, event, _):
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(str(SOURCE)) or code.co_name == "<module>":
            return
        name = str(Path(code.co_filename).relative_to(SOURCE))
        if (name, code.co_qualname) == inside and event in ("call", "return"):
            depth += 1 if event == "call" else -1
        if event == "call" and (inside is None or depth > 0):
            seen[name] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def target() -> qg.Target:
    """A logistic regression of three coefficients: smooth, and not Gaussian."""
    x = jr.normal(jr.key(1), (40, 3))
    y = (x @ jnp.array([1.0, -1.0, 0.5]) > 0).astype(x.dtype)

    def log_prior(z):
        return -0.5 * z @ z

    def log_likelihood(z, data):
        x, y = data
        return -jnp.logaddexp(0.0, (1 - 2 * y) * (x @ z))

    return qg.Target(log_prior=log_prior, log_likelihood=log_likelihood, data=(x, y), dim=3)


def full_rank() -> Counter[str]:
    """A full-rank fit by `auto`."""
    fit, problem = qg.fit, target()
    # Once in a process: where compiled programs are kept.
    qg.keep_compiled()
    return trace(lambda: fit(problem, "full-rank", key=jr.key(0), progress=False))


def step() -> Counter[str]:
    """A step of `Sgd` with QuadCV."""
    fit, problem, method = qg.fit, target(), qg.Sgd("quadcv", steps=1)
    inside = "solvers/steps.py", Job.step.__qualname__
    return trace(
        lambda: fit(problem, "mean-field", method=method, key=jr.key(0), progress=False), inside
    )


def main() -> None:
    """Print both lists."""
    for call in (full_rank, step):
        files = call()
        tools = sum(name.startswith(("_util/", "_numerics/")) for name in files)
        print(f"{call.__name__}: {len(files)} files, {tools} of them in _util/ and _numerics/")
        for name, calls in files.items():
            print(f"  {calls:6d} {name}")


if __name__ == "__main__":
    main()
