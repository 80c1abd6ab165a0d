"""Newton steps for mixtures of Gaussians: every component by the curvature that it sees, all at once.

The ELBO of q = sum_k w_k q_k is sum_k w_k E_{q_k}[f - log q]: draws are stratified, each component has
its own. In the natural parameters of the components (Lin, Khan & Schmidt 2019; Arenz et al. 2018) its
gradient gives, with h = f - log q,
  P_k <- P_k - r E_k Hess h,   m_k <- m_k + r P_k^-1 E_k grad h,   log w_k <- log w_k + r E_k h,
where E_k is the mean over q_k.
For one component these are the steps of `newton.py`. Where q is the posterior h is constant, and every
draw says so: the steps have no noise there. Hess log q and grad log q are closed forms.
"""

from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float

from ..evaluation.points import Points, sobol_pairs
from ..families import Components, Mixture
from ..families.bases import Normal
from ..session import Candidate, Recorder
from .newton import cholesky_from_basis, make_positive_definite, newton_step
from .solver import AbstractSolver, Feedback, Step


class MixtureState(NamedTuple):
    """Where steps go on: the mixture, steps that were averaged, the length of one, and steps taken."""

    q: Mixture
    number: int = 0
    length: float = 1.0
    taken: int = 0


class MixtureNewton(AbstractSolver):
    """One step of all components at a time, from `pairs` pairs of draws of each, and some Hessians.

    Hessians are taken at `hessian_products` / dim draws of each component, between `least_draws` and
    `most_draws`. The first `full_steps` have length 1, later ones 2/t, which averages the noise of draws
    away; where half the variance of f - log q is below `exact` nats nothing is left to find. A step that
    clearly loses is taken again at `shorten` times its length. Components whose weight falls below
    `least_weight` are removed: at a weight of 1e-4 one is worth less than that in nats.
    """

    title: ClassVar[str] = "Newton steps of a mixture"

    pairs: int = 64
    hessian_products: int = 200
    least_draws: int = 8
    most_draws: int = 32
    full_steps: int = 20
    exact: float = 1e-4
    shorten: float = 0.3
    least_length: float = 1e-2
    least_weight: float = 1e-4

    def init(self, session: Recorder, start: Candidate) -> MixtureState:
        """At the start."""
        del session
        assert isinstance(start.q, Mixture)
        return MixtureState(start.q)

    def step(self, session: Recorder, state: MixtureState, feedback: Feedback | None) -> Step:
        """One step, or the last one again but shorter."""
        q, length = state.q, state.length
        if feedback is not None and feedback.best.terms.gap < self.exact:
            return Step((), state, state.taken, end="stationary")
        if feedback is not None and state.taken and feedback.change.clearly_below():
            assert isinstance(feedback.best.q, Mixture)
            q, length = feedback.best.q, max(self.least_length, self.shorten * length)
        taken, number = state.taken + 1, state.number + 1
        rho = length * (1.0 if number <= self.full_steps else 2.0 / (number - self.full_steps + 2))
        rng = session.rng("mixture", session.steps, taken)
        with np.errstate(all="ignore"):
            found = self.moved(session, q.host_components(), rho, rng)
        if found is None:
            return Step((), state, state.taken, end="no curvature")
        trial = Mixture.of(found, q.dtype)
        return Step((trial,), MixtureState(trial, number, length, taken), taken)

    def moved(
        self, session: Recorder, now: Components, rho: float, rng: np.random.Generator
    ) -> Components | None:
        """The components after a step; None where nothing is finite."""
        points, dim, base = session.points, now.loc.shape[1], Normal()
        few = max(self.least_draws, min(self.most_draws, self.hessian_products // dim)) // 2
        rewards, locs, roots = [], [], []
        e = sobol_pairs(base, self.pairs, dim, rng)
        some = sobol_pairs(base, few, dim, rng)
        z = now.loc[:, None] + np.einsum("kij,nj->kni", now.root, e)
        values, slopes = points(z.reshape(-1, dim))
        values, slopes = values.reshape(z.shape[:2]), slopes.reshape(z.shape)
        for k, (loc, root) in enumerate(zip(now.loc, now.root, strict=True)):
            session.check()
            log_q, score, _ = log_density_of(now, z[k])
            reward = values[k] - log_q
            ok = np.isfinite(reward) & np.all(np.isfinite(slopes[k]), axis=1)
            if not ok.any():
                return None
            gradient = np.mean((slopes[k] - score)[ok], axis=0)
            rewards.append(np.mean(reward[ok]))
            curvature = self._curvature(points, now, loc, root, some, z[k][ok])
            if curvature is None:
                roots.append(root)
                locs.append(loc)
                continue
            w = make_positive_definite(np.eye(dim) - rho * curvature)
            locs.append(loc + rho * newton_step(root, w, gradient))
            roots.append(cholesky_from_basis(root, w))
        log_weights = now.log_weights + rho * (np.asarray(rewards) - np.max(rewards))
        log_weights = log_weights - scipy.special.logsumexp(log_weights)
        kept = log_weights >= min(np.log(self.least_weight), np.max(log_weights))
        return Components(log_weights[kept], np.stack(locs)[kept], np.stack(roots)[kept])

    def _curvature(
        self,
        points: Points,
        now: Components,
        loc: Float[np.ndarray, " dim"],
        root: Float[np.ndarray, "dim dim"],
        e: Float[np.ndarray, "draws dim"],
        z: Float[np.ndarray, "many dim"],
    ) -> Float[np.ndarray, "dim dim"] | None:
        """E_{q_k} Hess (f - log q) in the coordinates of the component's root."""
        at = loc + e @ root.T
        _, target = points.curvature(at, root)
        if not np.all(np.isfinite(target)):
            return None
        # At the same draws as the target's, so that equal Hessians cancel draw by draw.
        return target - np.mean(log_density_of(now, at, root)[2], axis=0)


def log_density_of(
    q: Components, z: Float[np.ndarray, "n dim"], basis: Float[np.ndarray, "dim dim"] | None = None
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"], Float[np.ndarray, "n dim dim"]]:
    """log q, its gradient, and its Hessian in the coordinates of a basis (zeros if there is none).

    With s_k = -P_k (z - m_k) and r_k = p(k | z): grad = sum_k r_k s_k = s,
    Hess = sum_k r_k (s_k s_k' - P_k) - s s'.
    """
    count, dim = z.shape
    log_joint, scores, precisions = [], [], []
    for log_weight, loc, root in zip(*q, strict=True):
        x = scipy.linalg.solve_triangular(root, (z - loc).T, lower=True)
        scores.append(-scipy.linalg.solve_triangular(root, x, lower=True, trans=1).T)
        log_det = np.sum(np.log(np.diagonal(root)))
        log_joint.append(log_weight - 0.5 * np.sum(x**2, axis=0) - log_det)
        if basis is not None:
            turned = scipy.linalg.solve_triangular(root, basis, lower=True)
            precisions.append(turned.T @ turned)
    joint, s = np.stack(log_joint, axis=1), np.stack(scores, axis=1)
    log_q = np.asarray(scipy.special.logsumexp(joint, axis=1))
    r = np.exp(joint - log_q[:, None])
    log_q = log_q - 0.5 * dim * np.log(2 * np.pi)
    score = np.einsum("nk,nki->ni", r, s)
    hessian = np.zeros((count, dim, dim))
    if basis is not None:
        gap = (s - score[:, None]) @ basis
        hessian = np.einsum("nk,nki,nkj->nij", r, gap, gap)
        hessian -= np.einsum("nk,kij->nij", r, np.stack(precisions))
    return log_q, score, hessian
