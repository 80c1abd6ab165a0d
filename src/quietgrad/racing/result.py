"""What a race hands back: a lane for each entrant, the mark, and what to use."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from .._util.html import Html, element
from ..evaluation.elbo_terms import MARGIN
from ..results import FitResult

# Endings that go without saying, and what a table shows of a lane.
USUAL = ("converged", "budget")
COLUMNS = ("entrant", "seconds", "steps", "final ELBO", "whole wait, s", "µs a step", "variance × cost")


class Lane(eqx.Module):
    """One entrant's run. What does not apply is None: a mark that was not reached, the noise of a
    method without an estimator, the cost of a step where steps differ."""

    name: str
    elbo: float
    status: str
    hint: str
    clock: dict[str, float]
    seconds: np.ndarray
    steps: np.ndarray
    elbos: np.ndarray
    estimator: str | None
    microseconds: float | None
    variance: float | None
    seconds_to_mark: float | None
    steps_to_mark: int | None

    @property
    def noise_cost(self) -> float | None:
        """Variance times seconds a step: the lower, the cheaper a quiet gradient."""
        if self.variance is None or self.microseconds is None:
            return None
        return self.variance * self.microseconds * 1e-6

    def cells(self) -> tuple[str, ...]:
        """A row of the table, in the order of `COLUMNS`."""
        ending = "" if self.status in USUAL else f" ({self.status})"
        return (
            self.name,
            "never" if self.seconds_to_mark is None else f"{self.seconds_to_mark:.3g}",
            "–" if self.steps_to_mark is None else f"{self.steps_to_mark:,}",
            f"{self.elbo:.2f}{ending}",
            f"{self.clock['total']:.1f}",
            "–" if self.microseconds is None else f"{self.microseconds:.0f}",
            "–" if self.noise_cost is None else f"{self.noise_cost:.2g}",
        )


class RaceResult(eqx.Module):
    """All lanes, the mark, the best fit, and entrants that could not start with the reason.

    `print` and a notebook show them as a table, with what to use below it.
    """

    lanes: list[Lane]
    mark: float
    winner: str
    best: FitResult
    left_out: dict[str, str]
    budget: float

    def recommendation(self) -> str:
        """What to use and why, by the optimisation, and what is waited for less if that is another."""
        lanes = {lane.name: lane for lane in self.lanes}
        text, waits = (
            self._by_optimisation(lanes),
            {name: lane.clock["total"] for name, lane in lanes.items() if lane.elbo >= self.mark},
        )
        soonest = min(waits, key=waits.__getitem__, default=self.winner)
        if soonest == self.winner:
            return text
        return (
            f"{text} Compiling and looking included, {soonest} was done first: after "
            f"{waits[soonest]:.2g} s, {self.winner} after {lanes[self.winner].clock['total']:.2g} s."
        )

    def _by_optimisation(self, lanes: Mapping[str, Lane]) -> str:
        winner = lanes[self.winner]
        if winner.seconds_to_mark is None:
            return (
                f"Nobody held the best ELBO long enough to say; {self.winner} ended highest. "
                "Give the race more seconds."
            )
        text = (
            f"Use {self.winner}: it came within {MARGIN:g} nat of the best ELBO "
            f"({self.mark + MARGIN:.1f}) after {winner.seconds_to_mark:.2g} s"
        )
        plain = lanes.get("nocv 10 draws")
        if plain is None or plain is winner:
            return f"{text}."
        if plain.seconds_to_mark is None:
            return f"{text}; plain gradients with 10 draws did not get there in {self.budget:.2g} s."
        times = plain.seconds_to_mark / max(winner.seconds_to_mark, 1e-9)
        return f"{text}, {times:.1f} times as fast as plain gradients with 10 draws."

    @property
    def title(self) -> str:
        """What the lanes raced for."""
        return f"first to ELBO {self.mark:.2f} (the best anyone found, minus {MARGIN:g} nat)"

    def notes(self) -> list[str]:
        """Who was left out and why, and what to use."""
        left_out = [f"left out: {name}: {reason}" for name, reason in self.left_out.items()]
        return [*left_out, self.recommendation()]

    def __str__(self) -> str:
        table = [COLUMNS, *(lane.cells() for lane in self.lanes)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        rows = [
            "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]) for row in table
        ]
        return "\n".join([self.title, *rows, *self.notes()])

    def _repr_html_(self) -> Html:
        header = element("tr", *(element("th", name) for name in COLUMNS))
        rows = [element("tr", *(element("td", c) for c in lane.cells())) for lane in self.lanes]
        notes = [element("p", note) for note in self.notes()]
        return element("div", element("p", self.title), element("table", header, *rows), *notes)

    def rows(self) -> list[dict[str, Any]]:
        """The lanes as plain values, fastest first."""
        return [
            {
                "entrant": lane.name,
                "elbo": lane.elbo,
                "status": lane.status,
                "clock": lane.clock,
                "seconds_to_mark": lane.seconds_to_mark,
                "steps_to_mark": lane.steps_to_mark,
                "estimator": lane.estimator,
                "microseconds_a_step": lane.microseconds,
                "gradient_variance": lane.variance,
                "variance_times_cost": lane.noise_cost,
                "history": {
                    "seconds": lane.seconds.tolist(),
                    "steps": lane.steps.tolist(),
                    "elbo": lane.elbos.tolist(),
                },
            }
            for lane in self.lanes
        ]
