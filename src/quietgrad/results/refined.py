"""Posterior draws by chains in the coordinates of a fit: the last resort, and the answer where q is not.

Chains start at draws of q and move where the posterior is about a standard normal, as far as q is right.
They go on until R-hat and effective sample sizes are met, or the time is over.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from .._numerics.lapack import over_points
from .._util.checks import whole
from .._util.compiling import program
from .._util.device import on_device
from .._util.extras import adapter
from .._util.progress import progress_line
from ..diagnostics.budget import Stage
from ..diagnostics.coordinates import AbstractCoordinates, BaseCoordinates
from ..diagnostics.for_nuts import transformed
from ..diagnostics.posterior import PosteriorDraws
from ..families import AbstractFamily
from ..targets import Target

# Quantiles whose effective sample sizes are those of the tails.
TAILS = (0.05, 0.95)


class Refine(eqx.Module):
    """How many chains run, how long, and when they are enough."""

    # Four chains are the least for which R-hat is usually read (Vehtari et al. 2021).
    chains: int = 4
    # Moves that adapt step and mass matrix: few, as the coordinates are those of a fit.
    warm_up: int = 300
    # Draws of each chain at least, and at most as many times more.
    draws: int = 1000
    longer: int = 16
    # Moves between two readings of the clock.
    block: int = 100
    # What chains must reach (Vehtari et al. 2021 ask for 1.01 of long chains, and for 100 effective
    # draws of each chain, in bulk and tails).
    rhat: float = 1.02
    effective: float = 400.0
    # Coordinates that are judged, chosen at random if there are more.
    judged: int = 2000


class ChainDiagnostics(eqx.Module):
    """The worst R-hat and effective sample sizes of all coordinates, and what the chains cost."""

    rhat: float
    effective_bulk: float
    effective_tail: float
    divergences: int
    gradients: int
    seconds: float
    acceptance: float

    def met(self, settings: Refine) -> bool:
        """Whether the chains are enough."""
        least = min(self.effective_bulk, self.effective_tail)
        return self.rhat < settings.rhat and least >= settings.effective

    def __str__(self) -> str:
        return (
            f"R-hat {self.rhat:.3f}, effective draws {self.effective_bulk:,.0f} in bulk and "
            f"{self.effective_tail:,.0f} in tails, {self.divergences:,} divergences, "
            f"{self.gradients:,} gradients, {self.seconds:.1f} s"
        )


class Refined(eqx.Module):
    """Posterior draws of several chains, used like a result.

    `z` are all draws on the unconstrained scale, by chain; `diagnostics` say how good they are and
    `converged` whether they are enough.
    """

    target: Target
    z: Float[Array, "chains draws dim"]
    diverging: Bool[np.ndarray, "chains draws"]
    steps: Int[np.ndarray, "chains draws"]
    diagnostics: ChainDiagnostics
    converged: bool = eqx.field(static=True)
    how: str = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], draws: int = 1000) -> Any:
        """Some of the draws at random, in the form of the target's points, as `FitResult.sample`.

        Without repetition as far as there are enough.
        """
        flat, count = self._flat(), whole(draws, "draws", least=1)
        rows = jax.random.choice(key, len(flat), (count,), replace=count > len(flat))
        return _constrained(self.target, flat[rows])

    def posterior(self, key: Key[Array, ""], draws: int = 1000) -> PosteriorDraws:
        """The same with words on how far to rely on them."""
        found = self.diagnostics
        effective = min(found.effective_bulk, found.effective_tail)
        return PosteriorDraws(self.sample(key, draws), math.nan, effective, self.converged, str(self))

    def predictive(self, key: Key[Array, ""], *args: Any, draws: int = 1000, **kwargs: Any) -> Any:
        """Observed variables of the model, drawn again, as `FitResult.predictive`."""
        if self.target.model is None:
            raise ValueError("this target has a density only, from which data cannot be drawn")
        key_draws, key_data = jax.random.split(key)
        return self.target.model.predictive(self.sample(key_draws, draws), args, kwargs, key=key_data)

    def to_arviz(
        self,
        *,
        coords: Mapping[str, Any] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
    ) -> Any:
        """All draws as an ArviZ `DataTree`, by chain."""
        make = adapter("arviz").chains_to_arviz
        stats = {"diverging": self.diverging, "n_steps": self.steps}
        return make(self.target, self.z, stats, str(self), coords=coords, dims=dims)

    def summary(self, **settings: Any) -> Any:
        """Mean, sd, interval, R-hat and effective sizes of every variable, by `arviz_stats.summary`."""
        return adapter("arviz").summary(self.to_arviz(), **{"kind": "all", **settings})

    def __str__(self) -> str:
        chains, draws, _ = self.z.shape
        verdict = "enough" if self.converged else "not enough: give refine more seconds"
        return (
            f"{chains * draws:,} posterior draws of {chains} chains {self.how}: {self.diagnostics}; "
            f"{verdict}"
        )

    def _flat(self) -> Float[Array, "draws dim"]:
        return self.z.reshape(-1, self.z.shape[-1])


def refine(
    target: Target,
    q: AbstractFamily,
    rng: np.random.Generator,
    *,
    seconds: float,
    settings: Refine,
    sampler: str | None,
    progress: bool | None,
) -> Refined:
    """Chains from q's draws in q's coordinates until they are enough or `seconds` are over.

    Warm-up and a first block of moves are made whatever the time.
    """
    if target.on_disk:
        raise ValueError(
            f"chains need all rows at every step, but the {target.rows:,} rows of this target stay on "
            "disk; make a target with the data in memory"
        )
    begun = time.perf_counter()
    engine = adapter("nuts").engine(sampler)
    with progress_line(show=progress) as show:

        def stage(name: str) -> None:
            show(lambda: Stage(name, time.perf_counter() - begun, seconds, "chains"))

        stage("start")
        coordinates, start, _ = transformed(target, q, rng, settings.chains)
        stage("warm-up")
        key = jax.random.key(int(rng.integers(2**31)))
        # Samplers work in jax's own floating-point type, whatever q's is.
        start = on_device(start, jnp.zeros(()).dtype)
        state = engine.warm(coordinates, start, settings.warm_up, key=key)
        chosen = np.sort(rng.permutation(q.dim)[: settings.judged])
        blocks: list[Any] = []
        found = None
        while found is None or not found.met(settings):
            spent = time.perf_counter() - begun
            drawn = len(blocks) * settings.block
            if blocks and (spent > seconds or drawn >= settings.longer * settings.draws):
                break
            stage(f"{settings.chains} x {drawn:,} draws" + ("" if found is None else f", {found}"))
            state, moves = engine.advance(coordinates, state, settings.block)
            z = _carried(coordinates, moves.u)
            blocks.append((np.asarray(z), *map(np.asarray, moves[1:])))
            enough = (len(blocks) * settings.block) % settings.draws == 0
            if enough or time.perf_counter() - begun > seconds:
                found = _diagnosed(blocks, chosen, time.perf_counter() - begun)
    z, diverging, steps, _ = (
        np.concatenate(parts).swapaxes(0, 1) for parts in zip(*blocks, strict=True)
    )
    assert found is not None
    return Refined(
        target,
        on_device(z),
        diverging,
        steps,
        found,
        converged=found.met(settings) and not found.divergences,
        how=_how(coordinates, q),
    )


def _diagnosed(blocks: list[Any], chosen: Int[np.ndarray, " some"], seconds: float) -> ChainDiagnostics:
    """Of all draws so far."""
    from arviz_stats.base.array import array_stats

    z, diverging, gradients, acceptance = (np.concatenate(p) for p in zip(*blocks, strict=True))
    ary = np.asarray(z[..., chosen], float)
    axes: dict[str, Any] = {"chain_axis": 1, "draw_axis": 0}
    with np.errstate(all="ignore"):
        rhat = np.max(array_stats.rhat(ary, method="rank", **axes))
        bulk = np.min(array_stats.ess(ary, method="bulk", **axes))
        tail = np.min(array_stats.ess(ary, method="tail", prob=TAILS, **axes))
    return ChainDiagnostics(
        rhat=float(rhat) if np.isfinite(rhat) else math.inf,
        effective_bulk=float(np.nan_to_num(bulk)),
        effective_tail=float(np.nan_to_num(tail)),
        divergences=int(np.count_nonzero(diverging)),
        gradients=int(np.sum(gradients)),
        seconds=seconds,
        acceptance=float(np.mean(acceptance)),
    )


def _how(coordinates: AbstractCoordinates, q: AbstractFamily) -> str:
    base = f"in the base coordinates of {type(q).__name__}"
    matrix = f"in coordinates whitened by gradients at draws of {type(q).__name__}"
    return base if isinstance(coordinates, BaseCoordinates) else matrix


@program
def _carried(
    coordinates: AbstractCoordinates, u: Float[Array, "moves chains base"]
) -> Float[Array, "moves chains dim"]:
    flat = over_points(coordinates.point, u.reshape(-1, u.shape[-1]).astype(coordinates.dtype))
    return flat.reshape(*u.shape[:2], -1)


@program
def _constrained(target: Target, z: Float[Array, "draws dim"]) -> Any:
    return over_points(target.constrain, z)
