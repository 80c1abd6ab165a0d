"""Weights that follow the parameters by Jarzynski's equality (Carbone et al. 2023).

Walkers take Langevin steps while the energy changes, and carry the log of a weight. With
a(x, y) = E(x) + (y - x).grad E(x)/2 + h |grad E(x)|^2/4 (in units of the rows' deviations), a step from
x under the old energy to y adds a_old(x, y) - a_new(y, x): with these weights the walkers are draws of
the new p, whatever the step size, and the mean weight follows Z.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..._util.checks import whole
from ..problem import EnergyProblem
from .contrast import contrast
from .method import AbstractEnergyMethod, StepInfo


class Walkers(eqx.Module):
    """Walkers, their log weights, log Z so far apart from these, and the parameters of the last step."""

    x: Float[Array, "chains dim"]
    log_weight: Float[Array, " chains"]
    log_z: Float[Array, ""]
    params: PyTree


class Jarzynski(AbstractEnergyMethod):
    """Walkers with weights that account for every change of the parameters; two gradients each a step.

    `step` is the size of a Langevin step in units of the rows' deviations. Walkers are drawn again by
    their weights when the effective number of them falls below `resample` of all. Consistent as walkers
    become many; a ratio of means, so biased for few. `log_z(state)` is an estimate of log Z for free.
    """

    chains: int = eqx.field(static=True)
    step_size: float = eqx.field(static=True)
    resample: float = eqx.field(static=True)

    def __init__(self, chains: int = 256, step: float = 0.2, resample: float = 0.5):
        self.chains = whole(chains, "chains", least=2)
        if not step > 0:
            raise ValueError(f"step must be positive; got {step!r}")
        self.step_size, self.resample = float(step), float(resample)

    @property
    def biased(self) -> bool:
        """By the ratio of two means."""
        return True

    def init(self, problem: EnergyProblem, params: PyTree, *, key: Key[Array, ""]) -> Walkers:
        """Draws with the rows' mean and deviations, weighted to be draws of p."""
        e = jr.normal(key, (self.chains, problem.dim), problem.data.dtype)
        x = problem.noise(e)
        energy = jax.vmap(problem.model, in_axes=(None, 0))(params, x)
        log_density = -0.5 * jnp.sum(e**2 + jnp.log(2 * jnp.pi), axis=1) - jnp.sum(
            jnp.log(problem.scale)
        )
        return Walkers(x, -energy - log_density, jnp.zeros((), x.dtype), params)

    def step(
        self,
        problem: EnergyProblem,
        params: PyTree,
        rows: Float[Array, "batch dim"],
        state: Walkers,
        *,
        key: Key[Array, ""],
    ) -> tuple[PyTree, StepInfo, Walkers]:
        """A Langevin step under the old energy, weighed by the new one."""
        key_move, key_choose = jr.split(key)
        h, wide = self.step_size**2 / 2, problem.scale[None, :]
        old = problem.model.slope(state.params, state.x)
        e = jr.normal(key_move, state.x.shape, state.x.dtype)
        x = state.x + wide * (self.step_size * e - h * wide * old[1])
        new = problem.model.slope(params, x)
        change = (x - state.x) / wide
        forth = _work(*old, change, wide, h)
        back = _work(*new, -change, wide, h)
        gain = forth - back
        # A walker that has left for good has no weight any more.
        log_weight = state.log_weight + jnp.where(jnp.isfinite(gain), gain, -jnp.inf)
        x = jnp.where(jnp.isfinite(gain)[:, None], x, state.x)
        w = jax.nn.softmax(log_weight)
        size = 1 / jnp.sum(w**2)
        gap, grad = contrast(problem.model, params, rows, x, w)
        after = _renewed(x, log_weight, state.log_z, size < self.resample * self.chains, key=key_choose)
        info = StepInfo(gap, jnp.full_like(gap, jnp.nan), jnp.full_like(gap, self.step_size), size)
        return grad, info, Walkers(*after, params)

    def draws(self, state: Walkers) -> Float[Array, "chains dim"]:
        """The walkers, without their weights."""
        return state.x

    def log_z(self, state: Walkers) -> Float[Array, ""]:
        """log Z of the last parameters that a step was taken with."""
        return state.log_z + jax.nn.logsumexp(state.log_weight) - jnp.log(self.chains)


def _work(
    energy: Float[Array, " chains"],
    slope: Float[Array, "chains dim"],
    change: Float[Array, "chains dim"],
    wide: Float[Array, "1 dim"],
    h: float,
) -> Float[Array, " chains"]:
    """a(x, x + change), in units of the deviations."""
    own = wide * slope
    return energy + 0.5 * jnp.sum(change * own, axis=1) + 0.25 * h * jnp.sum(own**2, axis=1)


def _renewed(
    x: Float[Array, "chains dim"],
    log_weight: Float[Array, " chains"],
    log_z: Float[Array, ""],
    due: Array,
    *,
    key: Key[Array, ""],
) -> tuple[Array, Array, Array]:
    """Systematic resampling where it is due; what the weights said of Z is kept."""
    count = x.shape[0]
    places = (jnp.arange(count) + jr.uniform(key, (), x.dtype)) / count
    chosen = jnp.searchsorted(jnp.cumsum(jax.nn.softmax(log_weight)), places)
    chosen = jnp.where(due, jnp.minimum(chosen, count - 1), jnp.arange(count))
    level = jnp.where(due, jax.nn.logsumexp(log_weight) - jnp.log(count), 0.0)
    return x[chosen], jnp.where(due, 0.0, log_weight), log_z + level
