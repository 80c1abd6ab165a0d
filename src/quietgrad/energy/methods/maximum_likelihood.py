"""Maximum likelihood with Markov chains: contrastive divergence, persistent chains, Stein weights.

Where chains start, how they move and how they are weighted are parts. From the rows and with few moves
it is contrastive divergence (Hinton 2002); from where they were, persistent contrastive divergence
(Tieleman 2008); with Stein weights the noise of E_p grad E is mostly taken away, and so is much of the
bias of chains that have not arrived.
"""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from ..._util.checks import part, whole
from ..moves import REGISTRY as MOVES
from ..moves import AbstractMove, moved, placed, recycled
from ..problem import EnergyProblem
from ..weighting import AbstractWeighting, UniformWeighting
from .contrast import contrast
from .method import AbstractEnergyMethod, StepInfo

Start = Literal["persistent", "rows", "noise"]
STARTS = ("persistent", "rows", "noise")


class ChainState(eqx.Module):
    """Where persistent chains are, and the step size."""

    x: Float[Array, "chains dim"]
    log_step: Float[Array, ""]


class MaximumLikelihood(AbstractEnergyMethod):
    """`moves` moves of `chains` chains a step, weighted by `weighting`, against the rows.

    A step takes `moves` + 1 gradients of the energy for each chain, and one backward pass through the
    energies of rows and chains. Unbiased only where chains are draws of p and weights are.

    `recycle` uses every point at which a move took a gradient, start and proposals, with the masses of
    `Recycled`. Stein weights need more points than columns, and hold wherever the points lie; the price
    is a backward pass through `moves` + 1 times as many points.
    """

    start: str = eqx.field(static=True)
    move: AbstractMove
    moves: int = eqx.field(static=True)
    chains: int = eqx.field(static=True)
    weighting: AbstractWeighting
    recycle: bool = eqx.field(static=True)

    def __init__(
        self,
        start: Start | str = "persistent",
        move: AbstractMove | str = "mala",
        moves: int = 5,
        chains: int = 256,
        weighting: AbstractWeighting | None = None,
        *,
        recycle: bool = False,
    ):
        if start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}; got {start!r}")
        registry: Any = MOVES
        self.start, self.move = start, part(move, registry, AbstractMove, "move")  # pyright: ignore[reportAbstractUsage]
        self.moves = whole(moves, "moves", least=1)
        self.chains = whole(chains, "chains", least=2)
        self.weighting = UniformWeighting() if weighting is None else weighting
        self.recycle = recycle
        refusal = self.weighting.refuses_masses() if recycle else None
        if refusal is not None:
            raise ValueError(refusal)

    @property
    def biased(self) -> bool:
        """Short chains from elsewhere are; persistent ones only by the weights and the moves."""
        return self.start != "persistent" or self.weighting.biased or not self.move.adjusted

    def init(self, problem: EnergyProblem, params: PyTree, *, key: Key[Array, ""]) -> ChainState:
        """Chains at noise with the rows' mean and deviations."""
        del params
        dtype = problem.data.dtype
        x = problem.noise(jr.normal(key, (self.chains, problem.dim), dtype))
        return ChainState(x, jnp.log(jnp.asarray(self.move.start(problem.dim), dtype)))

    def step(
        self,
        problem: EnergyProblem,
        params: PyTree,
        rows: Float[Array, "batch dim"],
        state: ChainState,
        *,
        key: Key[Array, ""],
    ) -> tuple[PyTree, StepInfo, ChainState]:
        """Move, weigh, and contrast."""
        key_start, key_move = jr.split(key)
        x = self._begun(problem, rows, state, key=key_start)
        run = (
            self.move,
            problem.model,
            params,
            placed(problem.model, params, x, state.log_step),
            problem.scale,
            self.moves,
        )
        if self.recycle:
            chains, accepted, every = recycled(*run, adapt=True, key=key_move)
            x, w = every.x, self.weighting(every.x, -every.slope, every.mass)
        else:
            chains, accepted = moved(*run, adapt=True, key=key_move)
            x, w = chains.x, self.weighting(chains.x, -chains.slope)
        gap, grad = contrast(problem.model, params, rows, x, w)
        info = StepInfo(gap, accepted, jnp.exp(chains.log_step), 1 / jnp.sum(w**2))
        return grad, info, ChainState(chains.x, chains.log_step)

    def draws(self, state: ChainState) -> Float[Array, "chains dim"]:
        """Where the chains were last."""
        return state.x

    def _begun(
        self,
        problem: EnergyProblem,
        rows: Float[Array, "batch dim"],
        state: ChainState,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "chains dim"]:
        if self.start == "persistent":
            return state.x
        if self.start == "noise":
            return problem.noise(jr.normal(key, state.x.shape, state.x.dtype))
        chosen: Int[Array, " chains"] = jr.randint(key, (self.chains,), 0, rows.shape[0])
        return rows[chosen]
