"""One fit in a process of its own: a line of JSON for the environment, then one for the fit.

python -m brought.cell MODEL TOOL SEED

Nothing compiled is taken from disk. Seconds are those of the whole process, from its start over imports
and the model's own work to the verdict; processor seconds count all threads, and compilers it starts.
Means and sds of all numbers are stored, so that a row can be judged by a reference that is made later.
"""

import json
import os
import sys
import time
from typing import Any

BEGAN = float(os.environ.get("CELL_STARTED", time.time()))


def main(name: str, tool: str, seed: int) -> None:
    """Fit and print."""
    import jax

    compiled: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **more: (
            event.endswith("backend_compile_duration") and compiled.append(seconds)
        )
    )
    from . import load
    from .reference import digits, processor_seconds
    from .tools import TOOLS

    model = load(name)
    answer = TOOLS[tool](model, seed)
    seconds, processor, programs = time.time() - BEGAN, processor_seconds(), len(compiled)
    row = {"model": name, "tool": tool, "seed": seed, "verdict": answer.verdict} | answer.more
    row |= {"seconds": round(seconds, 2), "processor_seconds": round(processor, 2)}
    row |= {"programs": programs, "compile_seconds": round(sum(compiled[:programs]), 2)}

    # Not before: they import this library, and others are timed without it.
    from zoo.cell import changed, plain

    from quietgrad._util.environment import environment

    def moments(draws: Any) -> dict[str, list[float]]:
        values = model.values(draws)
        return {"mean": digits(values.mean(axis=0), 7), "std": digits(values.std(axis=0), 5)}

    row["answer"] = moments(answer.draws())
    if answer.corrected is not None:
        row["corrected_answer"] = moments(answer.corrected())
    print(json.dumps(environment() | {"dirty": changed()}), flush=True)
    print(json.dumps({key: plain(value) for key, value in row.items()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
