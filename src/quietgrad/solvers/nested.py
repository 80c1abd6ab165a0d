"""A hierarchy by its globals: nested locals, and the best q(g) for the density that they leave.

One step finds the mode of log p(g), with the locals integrated out by their nested distribution, and the
best Gaussian there; the next one a flow for the globals, if a Gaussian is not enough. The dimension of
all that is k. (Integrated nested Laplace approximations, Rue et al. 2009, by the ELBO, not a grid.)
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._util.compiling import program
from ..families import AbstractFamily, FullRank, HasMoments, OnHost
from ..families.conditional import Hierarchical, Nested, NestedLaplace
from ..families.triangular import Triangular
from ..session import Candidate, Recorder
from ..structure import Structure
from .few_dimensions import (
    FlowSteps,
    Gaussian,
    GaussianSteps,
    Peak,
    PeakSearch,
    influence_order,
    standardised_pairs,
)
from .marginal import Marginal
from .solver import AbstractSolver, Feedback, Step


class NestedState(NamedTuple):
    """The member so far, and the Gaussian of its globals once there is one."""

    q: AbstractFamily
    gaussian: Gaussian | None = None
    taken: int = 0


class NestedGlobals(AbstractSolver):
    """From any member that has a mean; proposes `Hierarchical` ones with nested locals.

    `structure` is that of the target, which whoever drives it knows.

    Locals are skewed where that is expected to gain `worth_skew` nats: they are independent, one to a
    block, and what Gaussian ones miss (`Marginal.lost_by_gaussians`) is that much.
    Globals get a flow where the Gaussian's log weights at `judging_pairs` fresh pairs have a gap of
    `worth_flow` nats and there are at most `most_flow` of them.
    """

    title: ClassVar[str] = "globals of a hierarchy"

    structure: Structure | None = None
    search: PeakSearch = PeakSearch()
    gaussian: GaussianSteps = GaussianSteps()
    flow: FlowSteps = FlowSteps()
    climbs: int = 3
    worth_skew: float = 0.02
    worth_flow: float = 5e-4
    most_flow: int = 12
    judging_pairs: int = 32

    def init(self, session: Recorder, start: Candidate) -> NestedState:
        """Nothing is known of the globals but where the start has them."""
        del session
        return NestedState(start.q)

    def step(self, session: Recorder, state: NestedState, feedback: Feedback | None) -> Step:
        """The Gaussian for the globals, then a flow for them."""
        del feedback
        if state.gaussian is None:
            return self._gaussian(session, state)
        return self._flow(session, state, state.gaussian)

    def _gaussian(self, session: Recorder, state: NestedState) -> Step:
        marginal = self._marginal(session, state.q)
        g = np.asarray(marginal.nested.center, float)
        for _ in range(self.climbs):
            before, g = g, self.search.climb(marginal, g)
            marginal = marginal.recentred(g)
            if np.allclose(before, g, atol=1e-3):
                break
        peak = self.search.settle(marginal, g)
        if peak is None:
            return Step((), state, state.taken, end="no mode of the globals")
        stds = np.sqrt(np.sum(peak.root**2, axis=1))
        marginal = marginal.recentred(peak.at, self.search.share * stds)
        found = self.gaussian.fit(marginal, peak, session.rng("globals"))
        if found is None:
            return Step((), state, state.taken, end="no Gaussian for the globals")
        marginal = marginal.recentred(found.mean)
        if marginal.lost_by_gaussians() > self.worth_skew:
            # A step of theirs takes as many gradients as their rule has nodes, so they come last.
            peak = Peak(found.mean, found.root, found.left)
            stds = np.sqrt(np.sum(peak.root**2, axis=1))
            marginal = marginal.skewed().recentred(peak.at, self.search.share * stds)
            found = self.gaussian.fit(marginal, peak, session.rng("globals of skewed locals"))
            if found is None:
                return Step((), state, state.taken, end="no Gaussian for the globals")
            marginal = marginal.recentred(found.mean)
        # Fixed draws are overfitted: how good the Gaussian is shows at others.
        fresh = standardised_pairs(self.judging_pairs, len(peak.at), session.rng("judging globals"))
        found = found.at(marginal, fresh)
        of_globals = FullRank.of_host(found.mean, found.root, marginal.dtype)
        q = Hierarchical(of_globals=of_globals, of_locals=marginal.nested)
        session.note(
            "globals", count=self._known.k, gap=found.gap, locals=type(marginal.nested).__name__
        )
        return Step((q,), NestedState(q, found, state.taken + 1), state.taken + 1)

    def _flow(self, session: Recorder, state: NestedState, found: Gaussian) -> Step:
        q = state.q
        assert isinstance(q, Hierarchical)
        size = float(np.max(np.abs(found.log_weights)))
        # Weights of many rows are rounded, which is no gap.
        rounding = (float(np.finfo(q.dtype).eps) * size) ** 2
        if found.gap <= max(self.worth_flow, rounding) or len(found.mean) > self.most_flow:
            return Step((), state, state.taken, end="stationary")
        assert isinstance(q.of_locals, Nested)
        marginal = Marginal(q.of_locals, session)
        order = influence_order(found)
        covariance = (found.root @ found.root.T)[np.ix_(order, order)]
        root = np.linalg.cholesky(covariance)
        ordered = FullRank.of_host(found.mean[order], root, marginal.dtype)
        start = Triangular.of_gaussian(ordered, order)
        flow, gained = self.flow.fit(marginal, start, session.rng("flow of the globals"))
        session.note("flow of globals", gained=gained)
        member = Hierarchical(of_globals=flow, of_locals=q.of_locals)
        after = NestedState(member, found._replace(log_weights=np.zeros(2)), state.taken + 1)
        return Step((member,), after, after.taken)

    def _marginal(self, session: Recorder, q: AbstractFamily) -> Marginal:
        """Gaussian locals around the start's mean."""
        structure = self._known
        mean = _middle(q)
        g, z = mean[np.asarray(structure.globals)], mean[np.asarray(structure.blocks)].T
        nested = NestedLaplace.begin(session.problem.target, structure, z, g)
        return Marginal(nested, session).begun(g)

    @property
    def _known(self) -> Structure:
        assert self.structure is not None, "whoever drives this solver gives the structure"
        return self.structure


def _middle(q: AbstractFamily) -> Float[np.ndarray, " dim"]:
    """The mean, or where a draw of zero leads, in the precision of q."""
    if isinstance(q, HasMoments):
        return np.asarray(q.mean())
    if isinstance(q, OnHost):
        return q.host_transport(np.zeros((1, q.base_dim)))[0].astype(q.dtype)
    return np.asarray(_transported(q))


@program
def _transported(q: AbstractFamily) -> Float[Array, " dim"]:
    return q.transport(jnp.zeros(q.base_dim, q.dtype))
