"""`quietgrad show`: a saved result, read without its model."""

from pathlib import Path
from typing import Any

import jax.random as jr
from rich.console import Console

from ...results.display.table import count, elements, named, summary_row
from ...results.loading import load
from ...targets.stored import NO_MAP
from . import folder

# Draws of the summary, its rows that are printed, and numbers up to which it is made.
DRAWS, SHOWN, NUMBERS = 4000, 20, 2**12
# What is said of how a result was made, in this order.
SAID = ("saved", "quietgrad", "commit", "python", "jax", "numpy", "cpu", "backend", "precision", "seed")


def show_command(path: Path) -> int:
    """Print what a file or the folder of a fit holds."""
    place = path / folder.SAVED if path.is_dir() else path
    if path.is_dir() and not place.exists():
        raise ValueError(f"{path} has no {folder.SAVED}; name a file that result.save has written")
    if not place.exists():
        raise ValueError(
            f"there is no {place}; name the folder of quietgrad fit --out, or a file of result.save"
        )
    result = load(place)
    made = result.made
    said = ", ".join(f"{name} {made[name]}" for name in SAID if made.get(name) is not None)
    verdict = "not diagnosed" if result.diagnosis is None else str(result.diagnosis)
    lines = [str(result), f"method: {result.method!r}", f"made by: {said}", f"verdict: {verdict}"]
    lines += [f"restarts: {result.restarts}"] if result.restarts is not None else []
    Console().print(
        "\n".join([*lines, *_summary(result)]), markup=False, highlight=False, soft_wrap=True
    )
    return 0


def _summary(result: Any) -> list[str]:
    try:
        draws = named(result.sample(jr.key(0), DRAWS if result.q.dim <= NUMBERS else 100))
    except ValueError as error:
        if str(error) != NO_MAP:
            raise
        return [str(error)]
    total = count(draws)
    lines = [
        f"summary of q, {total:,} numbers:",
        f"{'':24}{'mean':>12}{'sd':>12}{'5.5 %':>12}{'94.5 %':>12}",
    ]
    for place, (label, values) in enumerate(elements(draws)):
        if place == SHOWN:
            return [*lines, f"({total - SHOWN:,} more)"]
        row = summary_row(label, values)
        numbers = "".join(f"{x:>12.4g}" for x in (row.mean, row.std, row.low, row.high))
        lines.append(f"{row.label:24.24}{numbers}")
    return lines
