"""What came out of peers.py: who reached the mark when, as tables."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from quietgrad.evaluation.arrival import arrival

OWN, OURS = "quietgrad", "quietgrad auto"
MARGIN = 1.0
Row = dict[str, Any]


def arrived(run: list[list[float]], mark: float) -> float:
    """Seconds until the mark is reached and held; infinite if it never is."""
    # The answer is the last snapshot, so that it is held there.
    held = [*run, run[-1]]
    found = arrival([at[0] for at in held], [at[2] for at in held], mark)
    return math.inf if found is None else found


def mark_of(rows: list[Row]) -> float:
    """The best ELBO that any first fit in one model and family had, less the margin."""
    finite = [at[2] for row in rows for at in row.get("cold", ()) if math.isfinite(at[2])]
    return max(finite, default=math.inf) - MARGIN


def ranking(rows: list[Row]) -> list[tuple[str, float, float | None, list[Row]]]:
    """For each tool in one model and family: seconds to the mark, at which rate, and the runs at it."""
    done = [row for row in rows if "cold" in row]
    mark, ranked = mark_of(done), []
    for (tool,), own in _grouped(done, "tool"):
        medians = [
            (_median(arrived(row["cold"], mark) for row in group), rate, group)
            for (rate,), group in _grouped(own, "rate")
        ]
        ranked.append((tool, *min(medians, key=lambda each: (each[0], -_ended(each[2])))))
    return ranked


def table(rows: list[Row]) -> str:
    """One line for each tool, and the rate at which it came first."""
    head = "| model, family | tool | rate | cold, s | of ours | warm, s | µs a step | MB | ELBO |"
    lines = [head, "|" + "---|" * 9]
    for place, mine in _grouped(rows, "task", "family"):
        ranked = ranking(mine)
        mark = mark_of(mine)
        ours = {tool: cold for tool, cold, _, _ in ranked}.get(OURS, math.nan)
        for tool, cold, rate, group in ranked:
            warm = _median(arrived(row["warm"], mark) for row in group)
            pace = _median(_pace(row["warm"]) for row in group)
            cells = [f"{place[0]}, {place[1]}", tool, "" if rate is None else f"{rate:g}"]
            cells += [_seconds(cold), f"{cold / ours:.1f}" if math.isfinite(cold / ours) else ""]
            cells += [_seconds(warm), "" if math.isnan(pace) else f"{1e6 * pace:.0f}"]
            cells += [f"{_median(r['megabytes'] for r in group):.0f}", f"{_ended(group):.1f}"]
            lines.append("| " + " | ".join(cells) + " |")
    failed = [row for row in rows if "failed" in row]
    lines += [f"{r['task']}, {r['family']}, {r['tool']}: failed: {r['failed']}" for r in failed]
    return "\n".join(lines)


def summary(rows: list[Row]) -> str:
    """Ours beside the first of the others, for every model and family."""
    lines = [
        "| model, family | quietgrad auto, s | the first of the others, s | factor |",
        "|" + "---|" * 4,
    ]
    for place, mine in _grouped(rows, "task", "family"):
        cold = {tool: (seconds, rate) for tool, seconds, rate, _ in ranking(mine)}
        ours, _ = cold.pop(OURS, (math.nan, None))
        others = {tool: at for tool, at in cold.items() if not tool.startswith(OWN)}
        if not others:
            continue
        tool, (seconds, rate) = min(others.items(), key=lambda each: each[1][0])
        named = tool if rate is None else f"{tool} at {rate:g}"
        next_one = f"{seconds:.2f}, {named}" if math.isfinite(seconds) else "none got there"
        factor = f"{seconds / ours:.1f}" if math.isfinite(seconds) else ""
        lines.append(f"| {place[0]}, {place[1]} | {_seconds(ours)} | {next_one} | {factor} |")
    return "\n".join(lines)


def about(rows: list[Row], command: str) -> str:
    """How the table was made, for the documentation."""
    repeats, limit = 1 + max(row["seed"] for row in rows), max(row["limit"] for row in rows)
    again = (
        f"what reached the mark in the first of {repeats} repetitions was repeated at its best rate, "
    )
    return f"`{command}`: {again if repeats > 1 else ''}at most {limit:.0f} s a run."


def _grouped(rows: list[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.items())


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def _ended(group: list[Row]) -> float:
    return _median(row["cold"][-1][2] for row in group)


def _pace(run: list[list[float]]) -> float:
    """Seconds a step, of tools that take equal ones: over all pieces but the first."""
    if len(run) < 3 or run[-1][1] - run[0][1] < 1000:
        return math.nan
    return (run[-1][0] - run[0][0]) / (run[-1][1] - run[0][1])


def _seconds(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "never"
