"""What XLA's level of optimisation costs and buys: the two programs of a first fit, compiled and run.

Run from the repository:
  python benchmarks/levels.py    processor seconds of compiling, milliseconds of a call, by level

Levels are measured in turn within one process, `REPEATS` times, and medians are printed with their ratio
to the default level. Nothing is stored: the numbers behind `SOONER` and `ONCE` of `_util/compiling.py`.
"""

import statistics
import time

import brought
import jax
import numpy as np

from quietgrad.evaluation import points

MODELS = ("change-point", "credit", "hmm-regimes", "item-response", "softmax")
LEVELS, REPEATS, CALLS = (3, 1, 0), 3, 20


def measured(target: points.Target, level: int) -> tuple[float, float]:
    """Processor seconds of compiling both programs, and milliseconds of a call for values."""
    points._programs.cache_clear()
    jax.clear_caches()
    before, points.SOONER = points.SOONER, level
    try:
        made = points.Points(target, np.float32)
        z = 0.1 * np.random.default_rng(0).normal(size=(128, target.dim or 1))
        began = time.process_time()
        made(z)
        made.curvature(z[:32], np.eye(z.shape[1]))
        compiled = time.process_time() - began
        began = time.process_time()
        for _ in range(CALLS):
            made(z)
        return compiled, 1e3 * (time.process_time() - began) / CALLS
    finally:
        points.SOONER = before


def main() -> None:
    """Print a row for each model and level."""
    jax.config.update("jax_enable_compilation_cache", False)
    print("| model | level | compiling, s | of the default | a call, ms | of the default |")
    print("|---|---|---|---|---|---|")
    for name in MODELS:
        target = brought.load(name).target()
        measured(target, LEVELS[0])
        seen = {level: [measured(target, level) for _ in range(REPEATS)] for level in LEVELS}
        middle = {k: [statistics.median(c) for c in zip(*v, strict=True)] for k, v in seen.items()}
        first = middle[LEVELS[0]]
        for level, (compiled, call) in middle.items():
            ratios = f"{compiled / first[0]:.2f}", f"{call / first[1]:.2f}"
            print(f"| {name} | {level} | {compiled:.2f} | {ratios[0]} | {call:.2f} | {ratios[1]} |")


if __name__ == "__main__":
    main()
