"""The mode of a log density with its curvature: a start for Gaussian families, best where data are many.

Several searches by L-BFGS share their evaluations, so that many cost little more than one. Newton steps
with the whole Hessian settle the best of them, which gets to the end of narrow ridges where L-BFGS
stops. Directions of positive curvature are followed uphill (Dauphin et al. 2014).
"""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from .._numerics.lbfgs import minimise_together
from ..evaluation.points import Points
from ..families import AbstractFamily, FitsQuadratic, HasMoments
from ..session import Candidate, Recorder
from .newton import cholesky_from_basis, make_positive_definite, newton_step, precision_from_basis
from .solver import AbstractSolver, Feedback, Step

# Lengths of a Newton step that are tried, all in one call: twice the step down to less than 1e-4 of it.
LENGTHS = 2.0 ** np.arange(1.0, -15.0, -0.5)
Check = Callable[[], None]


class Mode(NamedTuple):
    """Where the log density is highest, as far as was found, and minus its Hessian there.

    `left` is what a further Newton step would gain: much where the density has no highest point, such as
    in the neck of a funnel.
    """

    z: Float[np.ndarray, " dim"]
    precision: Float[np.ndarray, "dim dim"]
    left: float


class ModeState(NamedTuple):
    """The center of the search and a member of the family; then the mode, and how often the member
    for it was narrowed."""

    center: Float[np.ndarray, " dim"]
    like: AbstractFamily
    mode: Mode | None = None
    narrowed: int = 0


class ModeSearch(AbstractSolver):
    """The member of a family that suits the mode, narrowed until its ELBO is finite.

    `searches` begin at the start's mean and uniformly within `spread` of it; `iterations` of L-BFGS need
    only tell which one leads highest, because `newton_steps` settle it, until one would gain less than
    `enough` nats. The member is narrowed by half at most `narrowings` times. A peak counts as a mode if
    its sds are `resolved` times what numbers there can tell apart: then draws have some dozen values.
    """

    title: ClassVar[str] = "search for the mode"

    searches: int = 6
    iterations: int = 10
    spread: float = 1.0
    memory: int = 10
    newton_steps: int = 30
    enough: float = 5e-4
    narrowings: int = 5
    resolved: float = 8.0

    def init(self, session: Recorder, start: Candidate) -> ModeState:
        """The search begins around the start's mean."""
        del session
        assert isinstance(start.q, HasMoments)
        return ModeState(np.asarray(start.q.mean(), float), start.q)

    def step(self, session: Recorder, state: ModeState, feedback: Feedback | None) -> Step:
        """The mode and its member; then narrower ones, as long as the ELBO is not finite."""
        mode, narrowed = state.mode, state.narrowed
        if mode is None:
            mode = self.find(session.points, state.center, session.rng("mode"), session.check)
        elif feedback is None or math.isfinite(feedback.found.terms.elbo) or narrowed == self.narrowings:
            return Step((), state, 0, end="stationary")
        else:
            narrowed += 1
        if mode is None:
            return Step((), state, 0, end="no mode")
        q = state.like
        assert isinstance(q, FitsQuadratic)
        member = q.for_quadratic(mode.z, 4.0**narrowed * mode.precision)
        return Step((member,), ModeState(state.center, q, mode, narrowed), 0)

    def member(self, q: FitsQuadratic, mode: Mode, session: Recorder) -> Candidate | None:
        """The candidate that suits a mode; None if its ELBO is not finite however narrow."""
        for narrowed in range(self.narrowings + 1):
            found = session.candidate(q.for_quadratic(mode.z, 4.0**narrowed * mode.precision), 0)
            if math.isfinite(found.terms.elbo):
                return found
        return None

    def find(
        self,
        points: Points,
        center: Float[np.ndarray, " dim"],
        rng: np.random.Generator,
        check: Check,
    ) -> Mode | None:
        """The highest mode found around the center; None if density or curvature is not finite."""
        dim = len(center)
        spread = self.spread * rng.uniform(-1, 1, (self.searches - 1, dim))
        starts = center + np.concatenate([np.zeros((1, dim)), spread])
        with np.errstate(all="ignore"):
            best = min(self.search(points, starts, check), key=lambda end: end[1])
            return self.settle(points, *best, check) if np.isfinite(best[1]) else None

    def search(
        self, points: Points, starts: Float[np.ndarray, "k dim"], check: Check
    ) -> list[tuple[Float[np.ndarray, " dim"], float]]:
        """Where L-BFGS gets from each start, and minus the log density there; infinite if not finite."""

        def loss(z: Float[np.ndarray, "k dim"]) -> tuple[np.ndarray, np.ndarray]:
            check()
            value, slope = points(z)
            return -value, -slope

        found = minimise_together(loss, starts, iterations=self.iterations, memory=self.memory)
        return [(end.x, end.value if np.isfinite(end.value) else math.inf) for end in found]

    def settle(
        self, points: Points, z: Float[np.ndarray, " dim"], loss: float, check: Check
    ) -> Mode | None:
        """Newton steps to the top, each in the coordinates of the curvature before."""
        basis, curvature, height, left = np.eye(len(z)), None, -loss, math.inf
        for number in range(self.newton_steps):
            check()
            gradient, hessian = points.curvature(z[None], basis)
            if not (np.all(np.isfinite(hessian)) and np.any(np.diagonal(hessian))):
                break
            if number == 0:
                # Coordinates may differ by many powers of ten; one without curvature is left alone.
                diagonal = np.abs(np.diagonal(hessian))
                scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
                basis, hessian = np.diag(scale), hessian * np.outer(scale, scale)
            curvature = make_positive_definite(-hessian)
            step = newton_step(basis, curvature, gradient)
            basis = cholesky_from_basis(basis, curvature)
            left = 0.5 * float(gradient @ step)
            if not left > self.enough:
                break
            trials = z + LENGTHS[:, None] * step
            values = points(trials)[0]
            place = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
            if not values[place] > height:
                break
            z, height = trials[place], float(values[place])
        # The joint mode of a centred hierarchy is a spike at a scale of zero. Narrower than the numbers
        # around it, all draws are its middle, and an ELBO there means nothing.
        if curvature is None:
            return None
        precision, resolution = precision_from_basis(basis, np.eye(len(z))), np.finfo(points.dtype).eps
        # Sds given all other coordinates: these are what a draw must be told apart by.
        if np.any(np.diagonal(precision) * (self.resolved * float(resolution) * z) ** 2 > 1):
            return None
        return Mode(z, precision, left)
