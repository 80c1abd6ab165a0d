"""Sample average approximation as a method: fixed draws, Newton steps where they suit, a short polish.

Fixed draws overfit families with many parameters per draw, so low-rank, full-rank and flow families
take the mean-field solution as a start. Gaussians find their correlations by Newton steps; the rest is
left to a short run of stochastic steps.
"""

import equinox as eqx
import numpy as np
import optax
from jaxtyping import Float

from .._checks import part, whole
from .._random import key_of
from ..clock import OPTIMISE
from ..estimators import Quiet
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..host_draws import spread_pairs
from ..judging import paired
from ..points import Points
from ..recorder import Answer
from ..samplers import REGISTRY as SAMPLERS
from ..samplers import AbstractSampler, Antithetic, Rqmc
from ..status import Status
from ..targets import Target
from .finite_start import finite_start
from .fixed_draws import Climb, climb
from .given_start import given_start, mean_field_at, nothing_to_gain
from .method import AbstractMethod, Ending, Problem, Recorder, started_from
from .newton import Curved, newton, suits
from .sgd import Sgd

POLISH_STEPS, RICHER_POLISH_STEPS = 500, 3000
CHECKS = 10


class Saa(AbstractMethod):
    """L-BFGS at fixed draws, judged by fresh ones, then `polish_steps` quiet stochastic steps.

    `draws` to begin with, doubled up to `most_draws` until that gains less than `gain` nats. With
    `fresh` off the fixed draws are not judged, as in DADVI (Giordano et al. 2024). `sampler` makes the
    draws; antithetic pairs of Sobol points by default. `polish_steps` are 500, or 3000 for families
    beyond mean-field.
    """

    draws: int = 32
    most_draws: int = 1024
    most_iterations: int = 500
    gain: float = 0.1
    fresh: bool = True
    sampler: AbstractSampler = eqx.field(
        converter=lambda given: part(given, SAMPLERS, AbstractSampler, "sampler"),
        default=Antithetic(Rqmc()),
    )
    polish_steps: int | None = None
    polish_rate: float = 0.01

    def __check_init__(self):
        """Numbers of draws and iterations are whole."""
        for name in ("draws", "most_draws", "most_iterations"):
            whole(getattr(self, name), name, least=1)

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """Fixed draws use all rows."""
        if batch_size is not None:
            return "the method 'saa' fixes its draws and uses all rows; leave batch_size out"
        if target.hyperparameter_count:
            return "the method 'saa' does not fit hyperparameters; use 'auto' or 'sgd'"
        return Quiet().refuses(target, q) or self.sampler.refuses(self.draws, q.base, q.base_dim)

    def run(self, problem: Problem, recorder: Recorder) -> Ending:
        """Climb at growing numbers of draws, start the family there, Newton steps, polish."""
        target, q = problem.target, problem.q
        points = Points(target, q.dtype)
        recorder.look_with(points)
        given = given_start(problem, recorder)
        if given is None:
            start = MeanField.start_of(q, recorder.rng("mean-field"))
        else:
            left = nothing_to_gain(points, q, recorder, self.gain)
            if left is not None:
                recorder.confirm_start()
                return (
                    Status.CONVERGED,
                    f"a Newton step promises {left.nats:.3f} nats at the given start",
                )
            start = mean_field_at(given, q)
        begun = recorder.stage(
            "start", lambda: finite_start(points, start, recorder.rng("starts"), recorder)
        )
        answer, rested = self._climb(points, begun, recorder)
        if start is not q:
            if not q.contains(start):
                answer = recorder.look(q, answer.step)
            elif given is not None and paired(given.terms, answer.terms)[0] > 0:
                answer, led = self._newton(points, given._replace(step=answer.step), recorder)
                rested = bool(led)
            else:
                inside = started_from(q, answer.q, recorder)
                answer, led = self._newton(points, recorder.look(inside, answer.step), recorder)
                rested = rested if led is None else led
        steps = self.polish_steps
        if steps is None:
            richer = not isinstance(q, FitsQuadratic) or q.correlated
            steps = RICHER_POLISH_STEPS if richer else POLISH_STEPS
        if steps:
            rested = self._polish(problem, answer, steps, recorder)
        if rested:
            return Status.CONVERGED, "the judge's draws see no further gain"
        return Status.BUDGET, "the iterations were used up while the ELBO still rose; allow more"

    def _climb(self, points: Points, start: MeanField, recorder: Recorder) -> tuple[Answer, bool]:
        """The best answer of growing numbers of draws, and whether the last climb came to rest."""
        how = Climb(self.gain, iterations=self.most_iterations, judged_by_fresh=self.fresh)
        count, best, rested = self.draws, None, False
        while count <= max(self.draws, self.most_draws):
            e, step = self._draws(start, count, recorder), 0 if best is None else best.step
            found = recorder.stage(
                f"climb at {count} draws",
                lambda start=start, e=e, step=step: climb(points, start, e, how, recorder, step=step),
            )
            rested = found.rested
            if best is not None:
                gained, error = paired(found.terms, best.terms)
                if gained < max(2 * error, self.gain):
                    kept = found if gained > 0 else best
                    return Answer(kept.q, found.steps, kept.terms), rested
            best, start = Answer(found.q, found.steps, found.terms), found.q
            count *= 2
        assert best is not None
        return best, rested

    def _newton(self, points: Points, start: Answer, recorder: Recorder) -> tuple[Answer, bool | None]:
        """Where Newton steps lead from an answer and whether they came to rest, if they suit it."""
        if not suits(points, start.q):
            return start, None
        at, rng = Curved(start.q, start.terms, start.step), recorder.rng("newton")
        found = recorder.stage("newton", lambda: newton(points, at, recorder, rng))
        return Answer(found.q, found.steps, found.terms), found.rested

    def _draws(self, q: MeanField, count: int, recorder: Recorder) -> Float[np.ndarray, "draws dim"]:
        """Fixed draws; more of them begin with the fewer ones where the sampler's points do."""
        if self.sampler == Antithetic(Rqmc()):
            return spread_pairs(q.base, count // 2, q.dim, recorder.rng("fixed draws"))
        shape, key = (count, q.dim), key_of(recorder.words("fixed draws"))
        return np.asarray(
            self.sampler.draw(self.sampler.init(*shape), q.base, shape, q.dtype, key=key), float
        )

    def _polish(self, problem: Problem, answer: Answer, steps: int, recorder: Recorder) -> bool:
        """Stochastic steps with a decaying rate; True if they gained less than a nat."""
        rate = optax.cosine_decay_schedule(self.polish_rate, steps)
        every = max(1, steps // CHECKS)
        polish = Sgd(Quiet(), optax.adam(rate), steps, every, by_clock=False)
        before = recorder.best
        polish.steps_from(Problem(problem.target, answer.q), recorder, first=answer.step)
        with recorder.clock.phase(OPTIMISE):
            gained, error = paired(recorder.best.terms, before.terms)
        return gained - 2 * error < 1.0
