"""Newton steps for Gaussians: the best member of a family for the target's average curvature.

At a maximum of the ELBO over N(m, P^-1), E grad f = 0 and P = -E Hess f, or the member nearest to that
P which the family can hold (Opper & Archambeau 2009). So: average gradient g and Hessian H over draws of
q, average the precision over steps, P <- (1 - r) P - r H, and step to m + r P^-1 g with the member for
P (Khan & Lin 2017, conjugate-computation VI with a Hessian). r is 1 at first and 2/t then, which
averages the noise of the draws away.

With minus the Hessian W = -B'HB in the coordinates of a root B of the covariance, eigenvalues are near
one around an optimum, whatever the scales and correlations of the target. So what counts as noise, and
what to do about negative curvature, does not depend on the coordinates either.
"""

from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from ..evaluation.points import Points, sobol_pairs
from ..families import AbstractFamily, FitsQuadratic
from ..session import Candidate, Recorder
from .solver import AbstractSolver, Feedback, Step

# Eigenvalues below this share of the largest are noise.
FLOOR = 1e-7


class NewtonState(NamedTuple):
    """Where steps go on: the member, the precision averaged so far, and before the last step.

    `fitted` is the positive definite precision that the member was fitted to; `number` counts averaged
    steps, `length` shortens them after a loss.
    """

    q: AbstractFamily
    precision: Float[np.ndarray, "dim dim"] | None = None
    before: Float[np.ndarray, "dim dim"] | None = None
    fitted: Float[np.ndarray, "dim dim"] | None = None
    number: int = 0
    clipped: bool = False
    length: float = 1.0
    taken: int = 0

    def afresh(self) -> "NewtonState":
        """The start of a new average."""
        return NewtonState(self.q, fitted=self.fitted)


class Newton(AbstractSolver):
    """One averaged Newton step at a time, from `gradient_pairs` gradients and some Hessians.

    Hessians are taken at `hessian_products` / dim draws, between `least_draws` and `most_draws`: a
    Hessian costs about dim gradients. The first `full_steps` have r = 1; so have, up to step
    `clipped_steps`, those that follow a curvature which was not positive definite: its place is one to
    leave and not to average. A step that loses `loss` nats is taken again at `shorten` times its length.
    Draws at which anything is not finite are pulled towards the mean by `pull`, up to `pulls` times.
    """

    title: ClassVar[str] = "Newton steps"

    gradient_pairs: int = 32
    hessian_products: int = 1000
    least_draws: int = 8
    most_draws: int = 32
    full_steps: int = 2
    clipped_steps: int = 6
    loss: float = 5.0
    shorten: float = 0.3
    least_length: float = 1e-3
    pull: float = 0.3
    pulls: int = 4

    def init(self, session: Recorder, start: Candidate) -> NewtonState:
        """No curvature is known yet."""
        del session
        return NewtonState(start.q)

    def step(self, session: Recorder, state: NewtonState, feedback: Feedback | None) -> Step:
        """One step, or the last one again but shorter."""
        q, precision, length = state.q, state.precision, state.length
        lost = feedback is not None and state.taken and feedback.change.nats < -self.loss
        if lost and feedback is not None and length > self.least_length:
            q, precision, length = feedback.best.q, state.before, self.shorten * length
            assert isinstance(q, FitsQuadratic)
            precision = np.linalg.inv(q.host_covariance()) if precision is None else precision
        assert isinstance(q, FitsQuadratic)
        taken, basis = state.taken + 1, q.host_root()
        rng = session.rng("newton", session.steps, taken)
        gradient, hessian = self._averages(session.points, q, basis, rng)
        finite = np.all(np.isfinite(gradient)) and np.all(np.isfinite(hessian))
        if not finite or not np.any(np.diagonal(hessian)):
            return Step((), state, state.taken, end="no curvature")
        number = max(1, state.number + (not state.clipped or taken > self.clipped_steps))
        rho = length * (1.0 if number <= self.full_steps else 2.0 / number)
        mixed = -hessian
        if precision is not None:
            mixed = (1 - rho) * (basis.T @ precision @ basis) - rho * hessian
        curvature = make_positive_definite(mixed)
        center = np.asarray(q.mean(), float) + rho * newton_step(basis, curvature, gradient)
        fitted = precision_from_basis(basis, curvature)
        trial = q.for_quadratic(center, fitted)
        after = NewtonState(
            trial,
            precision_from_basis(basis, mixed),
            before=precision,
            fitted=fitted,
            number=number,
            clipped=curvature is not mixed,
            length=length,
            taken=taken,
        )
        return Step((trial,), after, taken)

    def _averages(
        self,
        points: Points,
        q: FitsQuadratic,
        basis: Float[np.ndarray, "dim dim"],
        rng: np.random.Generator,
    ) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        """Gradient, and Hessian in the basis, over quasi-random pairs of q's draws."""
        pairs = max(self.least_draws, min(self.most_draws, self.hessian_products // q.dim)) // 2
        some = sobol_pairs(q.base, pairs, q.base_dim, rng)
        many = sobol_pairs(q.base, self.gradient_pairs, q.base_dim, rng)
        gradient = hessian = np.full(q.dim, np.nan)
        for pull in range(self.pulls + 1):
            _, hessian = points.curvature(q.host_transport(self.pull**pull * some), basis)
            values, slopes = points(q.host_transport(self.pull**pull * many))
            gradient = np.mean(slopes, axis=0)
            # Where the density is zero its gradient may well be finite.
            if all(np.all(np.isfinite(x)) for x in (values, gradient, hessian)):
                break
        return gradient, hessian


def make_positive_definite(curvature: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The nearest positive definite matrix: eigenvalues take their absolute values."""
    least = FLOOR * np.max(np.abs(np.diagonal(curvature)))
    try:
        np.linalg.cholesky(curvature - least * np.eye(len(curvature)))
        return curvature
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(np.abs(values), FLOOR * np.abs(values).max())
    return (vectors * values) @ vectors.T


def newton_step(
    basis: Float[np.ndarray, "dim dim"],
    curvature: Float[np.ndarray, "dim dim"],
    gradient: Float[np.ndarray, " dim"],
) -> Float[np.ndarray, " dim"]:
    """B W^-1 B'g."""
    return basis @ np.linalg.solve(curvature, basis.T @ gradient)


def precision_from_basis(
    basis: Float[np.ndarray, "dim dim"], curvature: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "dim dim"]:
    """B^-T W B^-1, for a triangular basis: the precision in the target's own coordinates."""
    left = scipy.linalg.solve_triangular(basis, curvature, lower=True, trans=1)
    whole = scipy.linalg.solve_triangular(basis, left.T, lower=True, trans=1)
    return 0.5 * (whole + whole.T)


def cholesky_from_basis(
    basis: Float[np.ndarray, "dim dim"], curvature: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "dim dim"]:
    """The lower triangular root of B W^-1 B', the covariance that goes with the curvature."""
    upper = np.linalg.cholesky(curvature)
    turned = scipy.linalg.solve_triangular(upper, basis.T, lower=True)
    root = np.linalg.qr(turned)[1].T
    return root * np.sign(np.diagonal(root))
