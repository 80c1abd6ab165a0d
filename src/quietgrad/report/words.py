"""The study in sentences: what was counted, who was first, how many claims hold."""

import math
from collections import Counter
from collections.abc import Sequence

from ..study.claims import Claim, Verdict
from ..study.summary import Row
from .names import family_name, label_name
from .study import Study


def headlines(study: Study, rows: Sequence[Row], claims: Sequence[Claim]) -> list[str]:
    """A few sentences with the main numbers."""
    main = [row for row in rows if row.group == "main"]
    found = [_counts(study), *_firsts(study, main)]
    if tally := _tally(main):
        found.append(tally)
    found.append(_claims(claims))
    return found


def number(value: float | None, digits: int = 3) -> str:
    """A number for a sentence or a table: three digits, no exponent for common sizes."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{places}f}".replace("-", "−")


def nats(value: float) -> str:
    """An ELBO: two decimals, or none for the huge ones of an early end."""
    if not math.isfinite(value):
        return number(value)
    return f"{value:,.{2 if abs(value) < 1e5 else 0}f}".replace("-", "−")


def count(amount: int, noun: str) -> str:
    """An amount of something, with the plural where it belongs."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _counts(study: Study) -> str:
    by_status = Counter(record.status for record in study.records)
    others = [
        f"{by_status[status]} {word}"
        for status, word in (("failed", "failed"), ("timeout", "timed out"), ("skipped", "skipped"))
        if by_status[status]
    ]
    if study.missing:
        others.append(f"{len(study.missing)} not run yet")
    rest = ", ".join(others) if others else "none failed or was skipped"
    ends = [(run.column("step"), run.column("seconds")) for run in study.done]
    steps = sum((float(step[-1]) for step, _ in ends if len(step)), start=0.0)
    seconds = sum((float(second[-1]) for _, second in ends if len(second)), start=0.0)
    total = len(study.records) + len(study.missing)
    return (
        f"{count(by_status['done'], 'cell')} of {total:,} finished ({rest}): "
        f"{steps:,.0f} optimisation steps in {duration(seconds)} of optimisation."
    )


def duration(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{number(seconds)} seconds"


def _firsts(study: Study, rows: Sequence[Row]) -> list[str]:
    """A sentence for each task, on its first family; those without an arrival share one."""
    sentences, without = [], {}
    for task in study.tasks():
        families = [family for family in study.families() if _at(rows, task, family)]
        if families:
            here = _at(rows, task, families[0])
            if any(row.seconds_to_target is not None for row in here):
                sentences.append(_first(_task(study, task), families[0], here))
            else:
                without.setdefault(families[0], []).append(_task(study, task))
    return sentences + [
        f"On {listed(tasks)} with a {_family(family)}, no estimator came within 1 nat of the best "
        "ELBO in most of its repetitions: longer runs are needed to tell who is first."
        for family, tasks in without.items()
    ]


def _first(task: str, family: str, rows: Sequence[Row]) -> str:
    place = f"On {task} with a {_family(family)}"
    arrived = [row for row in rows if row.seconds_to_target is not None]
    best = min(arrived, key=lambda row: (row.seconds_to_target, row.label))
    told = (
        f"{place}, {label_name(best.label)} with {count(best.draws, 'draw')} was the first within 1 "
        f"nat of the best ELBO, after {number(best.seconds_to_target)} s"
    )
    plain = [row for row in rows if row.label == "nocv"]
    if not plain or best.label == "nocv":
        return f"{told}."
    known = [row for row in plain if row.seconds_to_target is not None]
    if not known:
        return f"{told}; NoCV never got there in most repetitions."
    other = min(known, key=lambda row: row.seconds_to_target or math.inf)
    factor = (other.seconds_to_target or 0.0) / max(best.seconds_to_target or 0.0, 1e-9)
    return (
        f"{told}; NoCV took {number(other.seconds_to_target)} s with {other.draws} draws, "
        f"{factor:.1f} times as long."
    )


def _task(study: Study, task: str) -> str:
    return f"{task} (simulated)" if study.simulated(task) else task


def _family(family: str) -> str:
    name = family_name(family)
    return name if name.startswith("Real") else name[0].lower() + name[1:]


def _tally(rows: Sequence[Row]) -> str:
    """Who came first, over all pairs of a task and a family."""
    winners: Counter[str] = Counter()
    for place in dict.fromkeys((row.task, row.family) for row in rows):
        arrived = [row for row in _at(rows, *place) if row.seconds_to_target is not None]
        if arrived:
            first = min(arrived, key=lambda row: row.seconds_to_target or math.inf)
            winners[label_name(first.label)] += 1
    if len(winners) == 0 or winners.total() < 2:
        return ""
    listed = ", ".join(f"{name} {wins}" for name, wins in winners.most_common())
    return f"First over all {winners.total()} pairs of task and family: {listed}."


def _claims(claims: Sequence[Claim]) -> str:
    tally = Counter(claim.verdict for claim in claims)
    return (
        f"Of {len(claims)} claims of the paper: {tally[Verdict.HOLDS]} confirmed here, "
        f"{tally[Verdict.DOES_NOT]} contradicted, {tally[Verdict.CANNOT_TELL]} that these records "
        "cannot judge."
    )


def _at(rows: Sequence[Row], task: str, family: str) -> list[Row]:
    return [row for row in rows if (row.task, row.family) == (task, family)]
