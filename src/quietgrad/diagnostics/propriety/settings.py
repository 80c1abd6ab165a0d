"""The numbers by which a density is called improper, and why: the same for fits and verdicts."""

import math
from typing import Any

import equinox as eqx
import numpy as np


class Propriety(eqx.Module):
    """Where a log density is looked at far from q, and what it must do there to count as improper.

    A span is one sd of q along a ray, or more where q is further than that from zero, or its sd is below
    one. Distances are in spans.
    """

    # How far out, by the bytes of a number: in single precision, sums of coordinates at 1e8 have lost
    # what is near zero. A prior that is wider than this many spans is taken for flat.
    farthest_single: float = 1e6
    farthest_double: float = 1e8
    # The farthest distance is at least this many sds of q: a normal has fallen by 200 nats there, and a
    # Cauchy faster than 1/t. Much more, and what rounding alone makes of sums would be a fall, where q
    # is as wide as digits allow.
    least_sds: float = 20.0
    # The first of the three distances of a first look; the others are the farthest and a hundredth of
    # it.
    nearest: float = 10.0
    # Distances of a second look, geometric from a tenth of a span on: neighbours differ by a third,
    # which makes 58 of them in single precision and 74 in double.
    closest: float = 0.1
    ratio: float = 4 / 3
    # A ray through q's mean may be a special one: where all effects of a hierarchy are equal, the
    # density rises for ever as their scale shrinks, and yet has no mass there. What is found on a ray
    # must be so on a parallel one too, moved by this many sds in every coordinate.
    aside: float = 0.1
    # It is moved by less, at most by so many powers of ten, where it would begin more nats down than
    # this: correlated coordinates leave the posterior, and lose digits, if they are moved by their sds.
    lower: float = 1.0
    shorter: int = 10
    # A proper density falls faster than t^-1. Tails fall like t^-s; a variance needs s > 3, and slopes
    # at the farthest distances are good to a tenth.
    improper_slope: float = -1.0
    no_variance_slope: float = -3.1
    # A density that falls more slowly than this ends a fit on the way: half of what would make it
    # proper. One that falls faster may still bend, and the fit goes on.
    certain_slope: float = -0.5
    # Nats below q's mean at which a tail may begin. One that holds as much mass as the mode at distance
    # t lies log(t) nats below it; with this much more, it would have to be 5e8 times as wide as all that
    # was looked at, and neither a fit nor a sampler would ever get there.
    slack: float = 20.0
    # Units in the last place that rounding moves a log density by; where these are more nats than this,
    # no slope can be told.
    ulps: float = 4.0
    most_rounding: float = 1.0
    # A stretch is flat if it is constant to rounding at this many neighbouring distances: over a factor
    # of three, while an exponential approach to a limit is over within a factor of 1.3.
    flat_points: int = 5
    # A density that falls towards a flat stretch as fast as before, or at least at this share of it,
    # does not approach a limit: it is cut off. exp, log and the logistic function are cut off where
    # numbers end, at |log eps| or beyond (16 in single precision, 36 in double): so far out, or so many
    # nats down. A little less, because distances are looked at in steps.
    kink: float = 0.5
    cut_off: float = 0.8
    # Nats that a fall has at least: less is what rounding makes of sums of large coordinates.
    least_fall: float = 0.5
    # Growth towards infinity is no slower than linear: over a factor of 2.4 in distance, three
    # neighbours, the rise grows by at least this.
    growth: float = 2.0
    # A density that rises to where numbers end must change from a number to one that is so many rounding
    # errors apart by less than this share of what it has risen: differences of larger terms, which are
    # rounding, change by as much as they are.
    numbers_apart: float = 2.0
    blurred: float = 0.1

    # Displacement: a coordinate whose location or scale has grown, or whose scale has shrunk, by this
    # factor since the start is looked at while a fit runs, and then again after another such factor.
    displaced: float = 1e4
    # Coordinates that are looked at, the most displaced first, and numbers that each may cost.
    most_coordinates: int = 8
    most_numbers: int = 2**22

    # Directions between coordinates: dimensions up to which one gradient for each, and a few more, are
    # taken; how many of the flattest directions are followed; digits of directions with simple ratios,
    # which are known exactly whatever the gradients are rounded to.
    most_dim: int = 128
    more_gradients: int = 4
    flattest: int = 2
    digits: int = 3

    # Spikes: points of a round in widths, how much finer the next round is, and the most rounds. The
    # search ends when as many rounds as there are decades gain less than this many nats.
    spike_reach: float = 3.0
    spike_points: int = 13
    spike_finer: float = 10.0
    spike_rounds: int = 12
    spike_flat: float = 0.01
    # |z|^-s has no finite integral for s >= 1. That must show in each of these decades of distance; the
    # place is known to 3% of the smallest, and s in its decade to 2%.
    spike_decades: int = 4
    spike_power: float = 0.97
    # A power falls by the same in each decade; other densities by ten times as much or more in the next.
    spike_even: float = 1.5
    # A scale that has grown by this factor since the start does not shrink towards a spike.
    wider: float = 100.0

    def farthest(self, dtype: Any) -> float:
        """The farthest distance, in spans."""
        return self.farthest_single if np.dtype(dtype).itemsize <= 4 else self.farthest_double

    def first_look(self, dtype: Any) -> tuple[float, float, float]:
        """Three distances, in spans."""
        far = self.farthest(dtype)
        return self.nearest, far / 100, far

    def second_look(self, dtype: Any) -> np.ndarray:
        """All distances, in spans."""
        far = self.farthest(dtype)
        steps = math.ceil(math.log(far / self.closest) / math.log(self.ratio))
        return np.geomspace(self.closest, far, 1 + steps)

    def deepest(self, distance: float, slope: float) -> float:
        """Nats below q's mean at which a tail of this slope may lie, `distance` sds away."""
        return -slope * math.log(max(distance, 1.0)) + self.slack


DEFAULT = Propriety()
