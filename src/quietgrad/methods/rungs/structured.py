"""Families with the structure of the model: Gaussians by block Newton, hierarchies by their globals.

The structure, which coordinates are global and which are blocks of locals, is found from the model's
plates and dims or from the zeros of its Hessian, once for a fit (`Fit.structure`).
"""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...evaluation.elbo_terms import paired_difference
from ...families import (
    AbstractFamily,
    AbstractStructured,
    Arrowhead,
    Chain,
    Hierarchical,
    MeanField,
)
from ...session import Candidate
from ...solvers import BlockNewton, NestedGlobals, Stop, drive
from ...status import Status
from ...structure import Structure, has
from ..method import Ending, started_from
from .evidence import Evidence
from .rung import AbstractRung, member

if TYPE_CHECKING:
    from ..auto import Fit

# Fewer coordinates than one global and four blocks have no structure that would pay.
LEAST_DIM = 5


class HierarchyRung(AbstractRung):
    """Globals drawn first, from a Gaussian or a flow, and locals by their own Newton steps given them.

    Up to `most_globals`: the globals' density is differentiated by differences, one by one. Beyond
    `begin_dim` coordinates a target with a structure begins with this family, because nothing below can
    be right for it.
    """

    title: ClassVar[str] = "a hierarchy, globals first"
    families: ClassVar[tuple[type[AbstractFamily], ...]] = (Hierarchical,)
    from_gaussian: ClassVar[bool] = False

    solver: NestedGlobals = NestedGlobals()
    most_globals: int = 32
    begin_dim: int = 1000

    def refuses(self, fit: "Fit") -> str | None:
        """Minibatches do not have all locals; few coordinates have no structure."""
        return _refuses(fit)

    def mends(self, evidence: Evidence) -> bool:
        """Scales that follow others, skewed globals, and correlations of any answer but a hierarchy."""
        return not isinstance(evidence.q, Hierarchical)

    def needed(self, fit: "Fit", evidence: Evidence) -> bool:
        """In the neck of a hierarchy. Chains of one step size do not enter it and agree with each other
        all the same: of eight schools, centred, their draws miss a quarter of the sd of log tau."""
        if (
            evidence.found is None
            or evidence.modes
            or not evidence.neck > evidence.found.settings.funnel
        ):
            return False
        return self._structure(fit, evidence.q) is not None

    def begin(self, fit: "Fit") -> Ending | None:
        """Where a full-rank Gaussian is out of reach, from the family's own start."""
        if fit.problem.q.dim <= self.begin_dim or self._structure(fit, fit.problem.q) is None:
            return None
        return self.solve(fit, fit.start)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best hierarchy around the globals of the answer below; None if there is no structure."""
        structure = self._structure(fit, below.q)
        if structure is None:
            return None
        session = fit.session
        session.note("structure", sentence=structure.source or str(structure))
        stop = Stop(gain=fit.gain, patience=4)
        solver = dataclasses.replace(self.solver, structure=structure)
        run = drive(solver, below, session, stop, name="globals of a hierarchy")
        if not isinstance(run.best.q, Hierarchical):
            return None
        return Status.CONVERGED, "further steps for the globals and their flow gain next to nothing"

    def _structure(self, fit: "Fit", q: AbstractFamily) -> Structure | None:
        structure = q.structure if isinstance(q, Hierarchical) else fit.structure
        return None if structure is None or not 0 < structure.k <= self.most_globals else structure


class StructuredRung(AbstractRung):
    """A Gaussian with the zeros of the model's precision, for targets with very many globals.

    Steps end when `patience` in a row gain less than `fine` times the fit's gain.
    """

    title: ClassVar[str] = "a structured Gaussian"
    families: ClassVar[tuple[type[AbstractFamily], ...]] = (AbstractStructured,)
    from_gaussian: ClassVar[bool] = False

    solver: BlockNewton = BlockNewton()
    most_steps: int = 60
    patience: int = 4
    fine: float = 0.1

    def refuses(self, fit: "Fit") -> str | None:
        """Minibatches do not have all locals; few coordinates have no structure."""
        return _refuses(fit)

    def mends(self, evidence: Evidence) -> bool:
        """Correlations of an answer that cannot have them."""
        return not getattr(evidence.q, "correlated", True)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """Damped Newton steps from the solution below, or from the mean-field one."""
        session, q = fit.session, below.q
        if not isinstance(q, AbstractStructured):
            if fit.structure is None:
                return None
            kind = Chain if fit.structure.chained else Arrowhead
            q = member(kind, q.dim, session, structure=fit.structure)
        elif not self._has(fit, q.structure):
            session.note("no structure", sentence=str(q.structure))
            return self._by_steps(fit, q)
        elif fit.given is None:
            below = fit.mean_field()[0]
        assert isinstance(q, AbstractStructured)
        session.note("structure", sentence=q.structure.source or str(q.structure))
        if type(below.q) is not type(q):
            below = session.evaluate(started_from(q, below.q, session), below.step)
        stop = Stop(gain=self.fine * fit.gain, patience=self.patience, iterations=self.most_steps)
        run = drive(self.solver, below, session, stop, name="block newton")
        if run.stationary:
            return Status.CONVERGED, "further block Newton steps gain next to nothing"
        return Status.BUDGET, f"block Newton steps still gained after {run.iterations}"

    def _by_steps(self, fit: "Fit", q: AbstractStructured) -> Ending:
        """Stochastic steps for a target that lacks the zeros of q.

        Entries of a root are in the units of the coordinates, and so are Adam's steps: of coordinates
        with sds of 0.1 a rate for sds of one loses all that was gained.
        """
        below = fit.mean_field()[0]
        assert isinstance(below.q, MeanField)
        typical = float(np.median(np.exp(np.asarray(below.q.log_std, float))))
        start = fit.embedded(q, below)
        if fit.given is not None and paired_difference(fit.given.terms, start.terms).nats > 0:
            start = fit.given
        rate = q.advice.anneal_rate * min(1.0, typical)
        solver = dataclasses.replace(fit.auto.anneal, rate=rate)
        return fit.ending_of(fit.annealed(start, fit.gain, "anneal", solver=solver))

    def _has(self, fit: "Fit", structure: Structure) -> bool:
        """Whether the target has the zeros by which Newton steps read a Hessian; what was found, has."""
        return bool(structure.source) or has(fit.problem.target, structure)


def _refuses(fit: "Fit") -> str | None:
    if fit.problem.batch_size is not None:
        return "minibatches do not have the rows of all locals"
    if fit.problem.q.dim < LEAST_DIM:
        return f"{fit.problem.q.dim} coordinates have no structure that would pay"
    return None
