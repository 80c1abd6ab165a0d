"""Denoising score matching (Vincent 2011): no chains, and the energy of rows with noise on them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..problem import EnergyProblem
from .method import AbstractEnergyMethod, StepInfo


class ScoreMatching(AbstractEnergyMethod):
    """Minimises E |s grad E(x + s e) - e|^2 / 2, with s `noise` times the rows' deviations.

    Its optimum is the density of the rows with that noise, and Z is left open: biased for what maximum
    likelihood fits, by more the larger the noise, while small noise makes the gradient loud. Takes the
    gradient of a gradient for each row, twice with noise of opposite signs.
    """

    noise: float = eqx.field(static=True, default=0.2)

    def __check_init__(self):
        """Noise is what it lives of."""
        if not self.noise > 0:
            raise ValueError(f"noise must be positive; got {self.noise!r}")

    @property
    def biased(self) -> bool:
        """It is another loss."""
        return True

    def init(self, problem: EnergyProblem, params: PyTree, *, key: Key[Array, ""]) -> PyTree:
        """Nothing is carried on."""
        del problem, params, key

    def step(
        self,
        problem: EnergyProblem,
        params: PyTree,
        rows: Float[Array, "batch dim"],
        state: PyTree,
        *,
        key: Key[Array, ""],
    ) -> tuple[PyTree, StepInfo, PyTree]:
        """The loss at rows with fresh noise, in pairs of opposite signs."""
        e = jr.normal(key, rows.shape, rows.dtype)
        e, twice = jnp.concatenate([e, -e]), jnp.concatenate([rows, rows])
        wide = self.noise * problem.scale[None, :]

        def loss(params: PyTree) -> Float[Array, ""]:
            _, slope = problem.model.slope(params, twice + wide * e)
            return 0.5 * jnp.mean(jnp.sum((wide * slope - e) ** 2, axis=1))

        grad = jax.grad(loss)(params)
        unknown = jnp.full((), jnp.nan, rows.dtype)
        return grad, StepInfo(unknown, unknown, unknown, unknown), state

    def draws(self, state: PyTree) -> None:
        """There are no chains."""
        del state
