"""The chapter of Ng and Wei's paper: its claims, judged from a study's records, and figures of its own.

`CLAIMS` is the list; a further claim is a function from `Evidence` to `Claim` and a line in it. Needs
neither jax nor the code that ran the study. `quietgrad report` loads it for the studies that name it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from quietgrad.report.chapter import Chapter
from quietgrad.report.stored_study import StoredStudy
from quietgrad.study.claim import Claim, Part, Verdict
from quietgrad.study.records import Record

from .ablations import inner_steps, second_order
from .consistency import medians_and_means, rank_five
from .early import slow_start
from .elbo import quadcv_lifts, zvcv_is_marginal
from .evidence import MODELS, Evidence
from .figure_ablations import ablations
from .figure_early import early
from .figure_repetitions import repetitions
from .predictive import lppd_gains
from .speed import draws_are_cheap, wall_clock
from .variance import fifth_at_once, gap_and_overlap, quadcv_is_quieter, zvcv_likes_many_draws

PAPER = "https://arxiv.org/abs/2410.05753"
CLAIMS: list[Callable[[Evidence], Claim]] = [
    wall_clock,
    draws_are_cheap,
    quadcv_lifts,
    zvcv_is_marginal,
    slow_start,
    quadcv_is_quieter,
    zvcv_likes_many_draws,
    fifth_at_once,
    rank_five,
    medians_and_means,
    lppd_gains,
    second_order,
    inner_steps,
    gap_and_overlap,
]
GOOD = (Verdict.HOLDS, Verdict.SHOWN)

__all__ = ["CLAIMS", "Evidence", "chapter", "judge", "tally"]


def judge(records: Iterable[Record]) -> list[Claim]:
    """Every claim of the paper, in its order, with what these records say about it."""
    evidence = Evidence(records)
    return [claim(evidence) for claim in CLAIMS]


def chapter(study: StoredStudy) -> Chapter:
    """What the paper adds to a study's page."""
    claims = judge(study.records)
    tasks = {run.cell.task for run in study.main}
    stand_ins = bool(tasks) and not tasks & {model[0] for model in MODELS}
    return Chapter(
        title="The paper's claims",
        source=PAPER,
        summary=_summary(claims, " on stand-ins for its data" if stand_ins else ""),
        claims=claims,
        figures=(early, repetitions, ablations),
    )


def tally(claims: Sequence[Claim]) -> Counter[Verdict]:
    """How many parts of all claims have which verdict."""
    return Counter(part.verdict for claim in claims for part in claim.parts)


def _summary(claims: Sequence[Claim], how: str) -> str:
    parts: list[Part] = [part for claim in claims for part in claim.parts]
    counts = tally(claims)
    judged = counts[Verdict.HOLDS] + counts[Verdict.SHOWN] + counts[Verdict.DOES_NOT]
    rest = " For the others the page says which runs could tell." if judged < len(parts) else ""
    return (
        f"The paper's {len(claims)} claims have {len(parts)} parts, of which these runs judge "
        f"{judged}{how}: "
        f"{counts[Verdict.HOLDS]} hold, {counts[Verdict.SHOWN]} are shown by a case, "
        f"{counts[Verdict.DOES_NOT]} do not hold.{rest}"
    )
