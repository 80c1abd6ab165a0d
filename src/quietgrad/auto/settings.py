"""What an automatic fit can be told, and the rates that suit a family."""

import math

import equinox as eqx

from ..families import AbstractFamily, AbstractFlow, LowRank, MeanField

# What rounds may raise a low-rank family's rate to.
MOST_RATE = 0.2


class AutoSettings(eqx.Module):
    """Rates, windows and limits; the defaults need no tuning by the user.

    `rate` is Adam's on the way, `family_rate` that of families that cannot start from a mean-field
    solution (by default 0.06 / sqrt(dim): the more coordinates a network moves, the smaller), and
    `finish_rate` the first one of the finish (by default 0.01 for flows, whose networks do not survive
    bold steps, 0.05 for low-rank families without Newton steps, and 0.02 for others). `window`
    steps (for minibatches `batch_window`) are the least between two tests; `gain` nats are worth going
    on for; `steps` and `seconds` bound the fit. With `by_clock` off, estimators are compared by gradient
    evaluations instead of seconds, and a fit can be repeated exactly. `climb=False` leaves out the climb
    at fixed draws that fits start with. After `probe_after` seconds of optimisation it is worth looking
    for another estimator.
    """

    rate: float = 0.1
    family_rate: float | None = None
    finish_rate: float | None = None
    window: int = 200
    batch_window: int = 500
    growth: float = 0.2
    finish_steps: int = 500
    gain: float = 0.5
    check_draws: int = 64
    steps: int = 200_000
    seconds: float | None = None
    by_clock: bool = True
    climb: bool = True
    probe_after: float = 2.0

    def way_rate(self, q: AbstractFamily) -> float:
        """The rate of the way."""
        if isinstance(q, MeanField):
            return self.rate
        return 0.06 / math.sqrt(q.dim) if self.family_rate is None else self.family_rate

    def finish_rates(self, q: AbstractFamily, *, near: bool) -> tuple[float, float]:
        """The first rate of the finish, and what successful rounds may raise it to.

        Low-rank factors have far to go unless Newton steps brought them `near`.
        """
        if self.finish_rate is not None:
            return self.finish_rate, self.finish_rate
        if isinstance(q, AbstractFlow):
            return 0.01, 0.01
        return (0.05, MOST_RATE) if isinstance(q, LowRank) and not near else (0.02, 0.02)
