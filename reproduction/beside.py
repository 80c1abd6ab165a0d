"""Remarks on rows that are not the paper's, and on marks that rows of two judges share.

Each writes its text with numbers and says whether the words around them are true, as in `conclusion.py`.
"""

import math
from collections.abc import Callable

import numpy as np
from blocks import ARRIVALS
from conclusion import Sentence, listed, signed
from results import FAMILIES, PLACES, TASKS, Key, Results, clearly, judge, paper, plain

from quietgrad.evaluation.arrival import held_index
from quietgrad.report.names import label_name
from quietgrad.study.plateau import late_elbo
from quietgrad.study.records import Record
from quietgrad.study.summary import MARGIN


def marks_of_both(results: Results) -> Sentence:
    """Which arrivals hang on the judge of the row that sets the mark."""
    grid = judge(next(iter(results.runs("frisk", "mean-field", paper("nocv", 10)).values())))
    changed, rows = [], 0
    for place in PLACES:
        keys = [key or results.quiet(*place) for key in ARRIVALS]
        reps = results.shared(*place, keys)
        best = max(_all_runs(results, place), key=late_elbo)
        gap = results.gain(*place, plain(place[1]), paper("nocv", 10), across_judges=True)
        assert gap is not None
        for key in keys:
            runs = [results.runs(*place, key)[rep] for rep in reps]
            rows += 1
            # The mark in the numbers of the row's own judge; the gap is that judge's minus the grid's.
            shift = 0.0 if judge(runs[0]) == judge(best) else gap.middle
            mark = late_elbo(best) - MARGIN + (shift if judge(best) == grid else -shift)
            before = sum(results.arrivals[run.cell.name].steps is not None for run in runs)
            after = sum(_stays(run, mark) for run in runs)
            if (2 * before > len(runs)) != (2 * after > len(runs)):
                changed.append(f"{_row(key)} on {place[0]} {FAMILIES[place[1]]}")
    text = (
        "The best row may be of either [judge](#two-judges). Moved by what the two differ by on plain "
        f"gradients, {len(changed)} of these {rows} medians would change between arriving and not: "
        f"{listed(changed)}."
    )
    return Sentence(text, len(changed) < 0.1 * rows, f"{changed}")


def _all_runs(results: Results, place: tuple[str, str]) -> list[Record]:
    here = [run for run in results.study.done if (run.cell.task, run.cell.family) == place]
    return [run for run in here if math.isfinite(late_elbo(run))]


def _stays(run: Record, mark: float) -> bool:
    elbo = np.append(run.elbo, float(run.outcome.get("elbo", math.nan)))
    held = held_index(elbo, mark, 2) if run.cell.ends_itself else held_index(elbo, mark)
    return held is not None and late_elbo(run) >= mark


def _row(key: Key) -> str:
    return f"{label_name(key[1])}{'' if key[2] is None else f' {key[2]}'}"


def fast(results: Results) -> Sentence:
    """Where `quadcv-fast` ends beside QuadCV, and `bam` at full rank."""
    told, signs = [], []
    for task, family in (place for place in PLACES if place[0] in ("a1a", "frisk")):
        if family == "real-nvp":
            continue
        own: Key = ("entropy" if family == "low-rank" else "judge", "quadcv", 10)
        gain = results.gain(task, family, ("main", "quadcv-fast", 10), own)
        if gain is None:
            continue
        signs.append(clearly(gain))
        half = (gain.high - gain.low) / 2
        told.append(f"{task} {FAMILIES[family]} {gain.middle:+.2f} ± {half:.2f}")
    text = (
        "Where runs end at a constant step, `quadcv-fast` is clearly above QuadCV in "
        f"{signs.count(1)} of {len(signs)} settings and clearly below in none ({'; '.join(told)} nats)."
    )
    return Sentence(signed(text), signs.count(1) > 1 and signs.count(-1) == 0, f"{told}")


def bam(results: Results) -> Sentence:
    """`bam` from the grid's starts: it does not end by itself, and on frisk it stops far off."""
    runs = {
        task: list(results.runs(task, "full-rank", ("main", "bam", None)).values())
        for task in ("a1a", "frisk")
    }
    ends = {task: max(late_elbo(run) for run in each) for task, each in runs.items()}
    auto = results.level("frisk", "full-rank", ("main", "auto", None))
    assert auto is not None
    every = [str(run.outcome.get("fit_status")) for each in runs.values() for run in each]
    text = (
        f"`bam` ends by its own rule in none of its {len(every)} runs: on a1a its budget is used up "
        "while the ELBO still rises, and on frisk, whose starts are far off, it stops "
        f"{auto.middle - ends['frisk']:,.0f} nats below `auto` at best."
    )
    rising = all("gain" in str(run.outcome.get("hint")) for run in runs["a1a"])
    true = "converged" not in every and rising and ends["frisk"] < auto.middle - 1000
    return Sentence(text, true, f"{ends}, {every}")


GROUPS = {
    "entropy": "other entropies at rank 5",
    "beta": "other criteria for beta",
    "flows": "the other Real NVP",
    "rates": "the learning rates",
}


def fewer_runs(results: Results) -> Sentence:
    """Which rows beside the grid have one repetition or none."""
    once, never = [], []
    for group, name in GROUPS.items():
        runs = [run.cell for run in results.study.done if run.cell.group == group]
        reps = {task: len({cell.rep for cell in runs if cell.task == task}) for task in TASKS}
        for count, found in ((1, once), (0, never)):
            few = [task for task, number in reps.items() if number == count]
            if few:
                found.append(name if len(few) == len(TASKS) else f"{name} on {listed(few)}")
    text = f"One repetition, for want of processor time: {listed(once)}. Not run: {listed(never)}."
    return Sentence(text, bool(once and never), f"{once}, {never}")


BESIDE: dict[str, Callable[[Results], Sentence]] = {
    "marks-of-both": marks_of_both,
    "fast": fast,
    "bam": bam,
    "fewer-runs": fewer_runs,
}
