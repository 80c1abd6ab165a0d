"""Taylor control variate (Miller et al. 2017): the target's second-order expansion at the mean of q.

grad f~(z) = grad f(mu) + H (z - mu) through Hessian-vector products; coefficient one. Its mean for the
location is grad f(mu); for the scale it needs the curvature against the covariance, tr(H Cov z).
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ...families import AbstractFamily, HasDiagonalScale, HasMoments, split
from ...targets import Target
from ..entropy import Path
from .surrogate import AbstractSurrogate, Control

# A vector's product with the target's Hessian at the mean of q.
HessianProduct = Callable[[Float[Array, " dim"]], Float[Array, " dim"]]


class ScalePart(eqx.Module):
    """How the parameters of the scale are controlled."""

    def refuses(self, q: AbstractFamily, draws: int) -> str | None:
        """Why not for this family and these draws; None if it can."""
        del q, draws
        return None

    @abc.abstractmethod
    def products(self, q: AbstractFamily) -> int:
        """Hessian-vector products beside those of the draws."""

    @abc.abstractmethod
    def shift(
        self,
        q: AbstractFamily,
        hvp: HessianProduct,
        e: Float[Array, "draws base"],
        path: Path,
        gradient: Float[Array, " dim"],
        hvps: Float[Array, "draws dim"],
    ) -> PyTree:
        """E grad f~ minus the average of grad f~ over the draws, in parameter space."""


class ExactScale(ScalePart):
    """The whole Hessian: dim products a step, for small dimensions."""

    largest: int = eqx.field(static=True, default=1000)

    def refuses(self, q: AbstractFamily, draws: int) -> str | None:
        """Large dimensions are too dear."""
        del draws
        if q.dim <= self.largest:
            return None
        return (
            f"the exact scale part takes {q.dim} Hessian products a step; use scale='leave-one-out' "
            f"or scale='none', or allow it with ExactScale(largest={q.dim})"
        )

    def products(self, q: AbstractFamily) -> int:
        """One for each dimension."""
        return q.dim

    def shift(
        self,
        q: AbstractFamily,
        hvp: HessianProduct,
        e: Float[Array, "draws base"],
        path: Path,
        gradient: Float[Array, " dim"],
        hvps: Float[Array, "draws dim"],
    ) -> PyTree:
        """The mean is the gradient of grad f(mu)'E z + tr(H Cov z)/2."""
        hessian = jax.vmap(hvp)(jnp.eye(q.dim, dtype=q.dtype))
        params, rebuild = split(q)

        def mean_value(p: PyTree) -> Float[Array, ""]:
            moved: Any = rebuild(p)
            spread = moved.covariance_trace(lambda rows: rows @ hessian, jnp.diagonal(hessian))
            return gradient @ moved.mean() + 0.5 * spread

        mean = jax.grad(mean_value)(params)
        pulled = path.pull_points((gradient[None, :] + hvps) / e.shape[0])
        return jax.tree.map(jnp.subtract, mean, pulled)


class LeaveOneOutScale(ScalePart):
    """The Hessian's diagonal for a draw comes from the other draws; no further products.

    The curvature part of a scale's gradient, (H(z - mu))_i sigma_i e_i, is replaced by
    D_i (sigma_i e_i)^2 with mean D_i sigma_i^2, where D is the diagonal estimated without the draw
    itself. (Subtracting a leave-one-out average of the part itself would cancel to nothing.) Factors of
    a low-rank family take `rank` products for their exact mean H F.
    """

    def refuses(self, q: AbstractFamily, draws: int) -> str | None:
        """A triangular scale has no diagonal to speak of, and one draw leaves no others."""
        if draws < 2:
            return f"the leave-one-out scale part needs at least 2 draws; got {draws}"
        if not isinstance(q, HasDiagonalScale):
            return "the leave-one-out scale part is for mean-field and low-rank families; use 'exact'"
        return None

    def products(self, q: AbstractFamily) -> int:
        """Those of the factors."""
        assert isinstance(q, HasDiagonalScale)
        return q.factor_products

    def shift(
        self,
        q: AbstractFamily,
        hvp: HessianProduct,
        e: Float[Array, "draws base"],
        path: Path,
        gradient: Float[Array, " dim"],
        hvps: Float[Array, "draws dim"],
    ) -> PyTree:
        """Location exactly, scales by the estimated diagonal, factors exactly."""
        assert isinstance(q, HasDiagonalScale)
        count = e.shape[0]
        step = jnp.exp(q.log_std)[None, :] * e[:, : q.dim]
        std2 = jnp.exp(2 * q.log_std)[None, :]
        products = hvps * step / (std2 * q.base.variance)
        others = (jnp.sum(products, axis=0, keepdims=True) - products) / (count - 1)
        linear = gradient[None, :] * step
        scale = jnp.mean(others * (std2 * q.base.variance - step**2) - linear, axis=0)
        factors = q.factor_shift(hvp, e, gradient[None, :] + hvps)
        return _place(q, {"loc": -jnp.mean(hvps, axis=0), "log_std": scale, **factors})


class NoScale(ScalePart):
    """The location only."""

    def products(self, q: AbstractFamily) -> int:
        """None."""
        del q
        return 0

    def shift(
        self,
        q: AbstractFamily,
        hvp: HessianProduct,
        e: Float[Array, "draws base"],
        path: Path,
        gradient: Float[Array, " dim"],
        hvps: Float[Array, "draws dim"],
    ) -> PyTree:
        """Minus the average of H (z - mu)."""
        return _place(q, {"loc": -jnp.mean(hvps, axis=0)})


SCALES: dict[str, type[ScalePart]] = {
    "exact": ExactScale,
    "leave-one-out": LeaveOneOutScale,
    "none": NoScale,
}


class Taylor(AbstractSurrogate):
    """Second-order expansion of the target at the mean of q, with coefficient one.

    Exact for a quadratic target with the exact scale part. Costs L Hessian-vector products a step,
    beside those of the scale part. Unbiased.
    """

    scale: ScalePart = ExactScale()

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def refuses(self, target: Target, q: AbstractFamily, draws: int) -> str | None:
        """The mean of q must be known."""
        del target
        if not isinstance(q, HasMoments):
            return f"{type(q).__name__} has no closed-form mean to expand at"
        if not q.base.variance < float("inf"):
            return "the base has no finite variance"
        return self.scale.refuses(q, draws)

    def hessian_products(self, q: AbstractFamily, draws: int) -> int:
        """One for each draw, and those of the scale part."""
        return draws + self.scale.products(q)

    def init(self, target: Target, q: AbstractFamily) -> None:
        """Nothing is learned."""

    def control(
        self,
        state: PyTree,
        target: Target,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        slope: Float[Array, "draws dim"],
        *,
        key: Key[Array, ""],
    ) -> tuple[Control, PyTree]:
        """Expand at the mean and shift the gradient by E grad f~ minus its average."""
        del slope, key
        moved: Any = q
        gradient, hvp = jax.linearize(jax.grad(target.log_density), moved.mean())
        hvps = jax.vmap(hvp)(path.z - moved.mean()[None, :])
        shift = self.scale.shift(q, hvp, e, path, gradient, hvps)
        return Control(None, shift, jnp.ones((), q.dtype)), state


def _place(q: AbstractFamily, blocks: dict[str, Array]) -> PyTree:
    """A parameter-space vector with the named blocks, zero elsewhere."""
    zero = jax.tree.map(jnp.zeros_like, eqx.filter(q, eqx.is_inexact_array))
    return eqx.tree_at(lambda p: [getattr(p, name) for name in blocks], zero, list(blocks.values()))
