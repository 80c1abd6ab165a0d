"""Newton steps for structured Gaussians (`block_steps`), damped: O(n) a step, whatever the dimension.

A hierarchy in centred form is far from quadratic: whole steps from a mean-field start can lose thousands
of nats. So a step begins from q's own precision, and one that loses is taken again from the best member
so far, shorter.
"""

from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from .._util.compiling import program
from .._util.device import on_device
from ..evaluation.points import sobol_pairs
from ..families import AbstractFamily, AbstractStructured
from ..session import Candidate, Recorder
from ..targets import Target
from .block_steps import Curvature, averages, newton_step, own_curvature
from .block_steps import Step as Stepped
from .solver import AbstractSolver, Feedback, Step


class BlockNewtonState(NamedTuple):
    """A member, the curvature averaged so far, averaged steps, and how long steps are."""

    q: AbstractFamily
    curvature: Curvature
    number: int = 0
    length: float = 1.0
    taken: int = 0


class BlockNewton(AbstractSolver):
    """One averaged step at a time, from `gradient_pairs` gradients and `hessian_pairs` Hessians.

    A Hessian costs k + b products, or k + 3b in a chain. Step t has length 1 up to `full_steps`, then
    2/t, which averages the noise of the draws away. A step that loses `loss` nats is taken again at
    `shorten` times the length; steps that do not lose grow by `grow` again, up to whole ones.
    """

    title: ClassVar[str] = "block Newton steps"

    gradient_pairs: int = 16
    hessian_pairs: int = 4
    full_steps: int = 6
    loss: float = 1.0
    shorten: float = 0.3
    grow: float = 1.7
    least_length: float = 1e-3

    def init(self, session: Recorder, start: Candidate) -> BlockNewtonState:
        """The precision of the start itself."""
        del session
        assert isinstance(start.q, AbstractStructured)
        return BlockNewtonState(start.q, _own(start.q))

    def step(self, session: Recorder, state: BlockNewtonState, feedback: Feedback | None) -> Step:
        """One step, or the last one again but shorter."""
        q, curvature, number, length = state.q, state.curvature, state.number, state.length
        if feedback is not None and feedback.change.nats < -self.loss:
            if length < self.least_length:
                return Step((), state, state.taken, end="stationary")
            q, length, number = feedback.best.q, self.shorten * length, 0
            assert isinstance(q, AbstractStructured)
            curvature = _own(q)
        elif state.taken:
            length = min(1.0, self.grow * length)
        assert isinstance(q, AbstractStructured)
        taken = state.taken + 1
        # Only whole steps are averaged.
        number += length == 1.0
        rho = length * (1.0 if number <= self.full_steps else 2.0 / (number - self.full_steps + 2))
        rng, dtype = session.rng("block newton", session.steps, taken), np.dtype(q.dtype)
        many, some = (
            on_device(sobol_pairs(q.base, pairs, q.base_dim, rng), dtype)
            for pairs in (self.gradient_pairs, self.hessian_pairs)
        )
        found = _advanced(session.problem.target, q, curvature, on_device(rho, dtype), many, some)
        after = BlockNewtonState(found.q, found.curvature, number, length, taken)
        return Step((found.q,), after, taken)


@program
def _own(q: AbstractStructured) -> Curvature:
    return own_curvature(q)


@program
def _advanced(
    target: Target,
    q: AbstractStructured,
    curvature: Curvature,
    rho: Float[Array, ""],
    many: Float[Array, "draws base"],
    some: Float[Array, "fewer base"],
) -> Stepped:
    return newton_step(q, averages(target.log_density, q, many, some), curvature, rho)
