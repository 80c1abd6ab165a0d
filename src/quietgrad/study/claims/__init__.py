"""The paper's claims, judged from a study's records. Needs neither jax nor the code that ran it.

`CLAIMS` is the list; a further claim is a function from `Evidence` to `Claim` and a line in it.
"""

from collections.abc import Callable, Iterable

from ..records import Record
from .ablations import inner_steps, second_order
from .claim import Claim, Part, Verdict, conclude
from .consistency import medians_and_means, rank_five
from .early import slow_start
from .elbo import quadcv_lifts, zvcv_is_marginal
from .evidence import Evidence
from .predictive import lppd_gains
from .speed import draws_are_cheap, wall_clock
from .variance import fifth_at_once, quadcv_is_quieter, zvcv_likes_many_draws

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
]

__all__ = ["CLAIMS", "Claim", "Evidence", "Part", "Verdict", "conclude", "judge"]


def judge(records: Iterable[Record]) -> list[Claim]:
    """Every claim of the paper, in its order, with what these records say about it."""
    evidence = Evidence(records)
    return [claim(evidence) for claim in CLAIMS]
