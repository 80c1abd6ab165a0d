"""The study in sentences: what was found, what to use; and then the details."""

import math
from collections import Counter
from collections.abc import Sequence

from ..study.clock import seconds
from ..study.summary import Row
from .names import BASELINES, family_name, label_name
from .numbers import count, duration, listed, number, times
from .stored_study import StoredStudy

# Times of the first one that a row may take and still be recommended: a needless setting costs more.
TIE = 2.0


def headlines(study: StoredStudy, rows: Sequence[Row], summary: str) -> list[str]:
    """What was found and what to use; and `summary`, what the study's own chapter says, if anything."""
    main = [row for row in rows if row.group == "main"]
    races = [race for race in _races(main) if any(_clock(row) is not None for row in race)]
    if not races:
        found = [
            "Nothing came within 1 nat of the best ELBO in most of its repetitions: longer runs are "
            "needed to tell what is first."
        ]
    elif not study.timed:
        found = [
            f"Counted in steps, {label_name(_leader(races))} was within 1 nat of the best ELBO first, "
            f"or with less than twice the steps, on {_where(races, _winners(races)[_leader(races)])}."
            f"{_others(main, races)}",
            "What to use depends on the seconds of a step, which these runs do not have: `quietgrad "
            "study time` measures them.",
        ]
    else:
        found = [f"{_found(races)}{_others(main, races)}", _use(races)]
    return [*found, *([summary] if summary else [])]


def details(study: StoredStudy, rows: Sequence[Row]) -> list[str]:
    """How much was run, and a sentence on each task and family."""
    main = [row for row in rows if row.group == "main"]
    return [_counts(study), *(_first(study, race) for race in _races(main)), *_compiled(main)]


def _races(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each task and family."""
    places = dict.fromkeys((row.task, row.family) for row in rows)
    return [[row for row in rows if (row.task, row.family) == place] for place in places]


def _clock(row: Row) -> float | None:
    """When a row arrives: in seconds, or in steps where there is no clock."""
    return row.seconds_to_target if row.timed else row.steps_to_target


def _fastest(rows: Sequence[Row]) -> Row | None:
    """Who is first; rows with a clock if there are any."""
    timed = [row for row in rows if row.timed] or list(rows)
    arrived = [row for row in timed if _clock(row) is not None]
    return min(arrived, key=lambda row: _clock(row) or 0.0, default=None)


def _winners(races: Sequence[Sequence[Row]]) -> Counter[str]:
    """In how many races each row was first, or nearly."""
    wins: Counter[str] = Counter()
    for race in races:
        first = _fastest(race)
        best = None if first is None else _clock(first)
        if first is None or best is None:
            continue
        near = [row for row in race if row.timed == first.timed and _clock(row) is not None]
        wins.update({row.label for row in near if (_clock(row) or 0.0) <= TIE * best})
    return wins


def _leader(races: Sequence[Sequence[Row]]) -> str:
    wins = _winners(races)
    # Of equals, the one that needs no settings.
    return max(wins, key=lambda label: (wins[label], label == "auto"))


def _found(races: Sequence[Sequence[Row]]) -> str:
    leader = _leader(races)
    told = (
        f"{label_name(leader)} was within 1 nat of the best ELBO first, or in less than twice the time "
        f"of the first, on {_where(races, _winners(races)[leader])}"
    )
    if leader in BASELINES or not any(row.label in BASELINES for race in races for row in race):
        return f"{told}."
    factors, short, steps = [], 0, 0.0
    for race in races:
        mine = _fastest([row for row in race if row.label == leader])
        plain = [row for row in race if row.label in BASELINES]
        theirs = _fastest(plain)
        if mine is not None and plain and theirs is None:
            short += 1
            steps = max([steps, *(row.steps for row in plain)])
        elif mine is not None and theirs is not None and mine.timed == theirs.timed:
            factors.append((_clock(theirs) or 0.0) / max(_clock(mine) or 0.0, 1e-9))
    if factors:
        told += f"; the best of NoCV, ZVCV-GD and QuadCV took {times(factors)} as long"
    if short:
        more = (
            f", and on {short} none of them arrived"
            if factors
            else "; none of NoCV, ZVCV-GD and QuadCV arrived"
        )
        told += f"{more} within its {steps:,.0f} steps"
    return f"{told}."


def _where(races: Sequence[Sequence[Row]], wins: int) -> str:
    many = len({race[0].family for race in races}) > 1
    return f"{wins} of {len(races)} {'pairs of model and family' if many else 'models'}"


def _others(rows: Sequence[Row], races: Sequence[Sequence[Row]]) -> str:
    """How many tasks and families are not in the count, because nothing arrived there."""
    left = len(_races(rows)) - len(races)
    if not left:
        return ""
    return f" On {left} more, none of these rows arrived in most of its repetitions."


def _use(races: Sequence[Sequence[Row]]) -> str:
    leader = _leader(races)
    steps = [[row for row in race if row.method == "sgd"] for race in races]
    known = [race for race in steps if _fastest(race) is not None]
    told = f"Use {label_name(leader)} here"
    if leader == "auto":
        told = "Use auto, which is quietgrad.fit(target, family) with no settings"
    wins = _winners(known)
    names = [label for label in wins if wins[label] == max(wins.values())]
    if not known or leader in names:
        return f"{told}."
    each = "was" if len(names) == 1 else "were each"
    return (
        f"{told}; for a training loop of your own at these step sizes, "
        f"{listed([*map(label_name, names)])} {each} the first, or nearly, on "
        f"{_where(known, wins[names[0]])} where one came there."
    )


def _counts(study: StoredStudy) -> str:
    by_status = Counter(record.status for record in study.records)
    others = [
        f"{by_status[status]} {word}"
        for status, word in (("failed", "failed"), ("timeout", "timed out"), ("skipped", "skipped"))
        if by_status[status]
    ]
    if study.missing:
        others.append(f"{len(study.missing)} not run yet")
    rest = ", ".join(others) if others else "none failed or was skipped"
    ends = [(run.column("step"), seconds(run)) for run in study.done]
    steps = sum((float(step[-1]) for step, _ in ends if len(step)), start=0.0)
    known = [float(spent[-1]) for _, spent in ends if len(spent) and not math.isnan(spent[-1])]
    spent = f" in {duration(sum(known))} of optimisation" if len(known) == len(ends) and known else ""
    total = len(study.records) + len(study.missing)
    return (
        f"{count(by_status['done'], 'cell')} of {total:,} finished ({rest}): "
        f"{steps:,.0f} optimisation steps{spent}."
    )


def _first(study: StoredStudy, rows: Sequence[Row]) -> str:
    task = f"{rows[0].task} (simulated)" if study.simulated(rows[0].task) else rows[0].task
    place = f"On {task} with a {_family(rows[0].family)}"
    best = _fastest(rows)
    if best is None:
        return f"{place}, nothing arrived in most of its repetitions: longer runs are needed."
    told = f"{place}, {_row(best)} was the first within 1 nat of the best ELBO, after {_when(best)}"
    plain = [row for row in rows if row.label == "nocv"]
    if not plain or best.label == "nocv":
        return f"{told}."
    other = _fastest(plain)
    if other is None:
        nearest = min(plain, key=lambda row: row.gap if math.isfinite(row.gap) else math.inf)
        return f"{told}; {_row(nearest)} {nearest.shortfall} after {nearest.steps:,.0f} steps."
    if other.timed != best.timed:
        return f"{told}."
    factor = (_clock(other) or 0.0) / max(_clock(best) or 0.0, 1e-9)
    return f"{told}; {_row(other)} took {_when(other)}, {times([factor])} as long."


def _row(row: Row) -> str:
    draws = "" if row.draws is None else f" with {count(row.draws, 'draw')}"
    return f"{label_name(row.label)}{draws}"


def _when(row: Row) -> str:
    if row.timed:
        return f"{number(row.seconds_to_target)} s"
    return f"{row.steps_to_target or 0:,.0f} steps"


def _compiled(rows: Sequence[Row]) -> list[str]:
    """Compiling is not in the seconds, so it is told."""
    labels = [label for label in ("auto", "saa", "nocv") if any(row.label == label for row in rows)]
    known = {
        label: [r.compile_seconds for r in rows if r.label == label and r.compile_seconds > 0]
        for label in labels
    }
    told = [
        f"{number(sorted(each)[len(each) // 2], 2)} s for {label_name(label)}"
        for label, each in known.items()
        if each
    ]
    if not told:
        return []
    return [f"Seconds are of optimisation; compiling took {listed(told)} on top (medians)."]


def _family(family: str) -> str:
    name = family_name(family)
    return name if name.startswith("Real") else name[0].lower() + name[1:]
