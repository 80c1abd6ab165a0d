"""What suits a family: how many draws, from which sampler, and the rates of a fit that tunes itself.

The numbers were found by measurement on the tasks of the benchmarks. Estimators and methods ask the
family for them, so a new family brings its own.
"""

from typing import NamedTuple


class Advice(NamedTuple):
    """Draws, samplers (by registered name) and rates that suit a family.

    `quiet_draws` is how many the estimator `quiet` takes a step. `search_draws`,
    `search_sampler` and `search_entropy` make the cheapest estimator that still leads to a good
    solution. Adam's rates: `explore_rate` far from the answer, `anneal_rate` at the start of a decaying
    round, which rounds that gain may raise to `most_anneal_rate`, and `near_rate` where Newton steps
    came first. `quadratic_rank` is the rank of the quadratic that QuadCV learns.
    """

    quiet_draws: int
    search_draws: int
    search_sampler: str
    search_entropy: str
    explore_rate: float
    anneal_rate: float
    most_anneal_rate: float
    near_rate: float
    quadratic_rank: int = 10
