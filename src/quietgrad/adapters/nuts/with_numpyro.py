"""NumPyro's NUTS on a density of our own, all chains in one program."""

from typing import Any

import jax
from jaxtyping import Array, Float, Key

from ..._util.compiling import program
from ..._util.extras import needs_extra
from ...diagnostics.coordinates import AbstractCoordinates
from .engine import AbstractEngine, Moves

with needs_extra("numpyro", "NumPyro's NUTS"):
    from numpyro.infer.hmc import hmc


class Engine(AbstractEngine):
    """The state carries its adaptation, so that warm-up is the same program as what follows."""

    def warm(
        self,
        coordinates: AbstractCoordinates,
        start: Float[Array, "chains base"],
        moves: int,
        *,
        key: Key[Array, ""],
    ) -> Any:
        """`moves` of warm-up; the state knows how many there have been."""
        state = _begin(self, coordinates, start, jax.random.split(key, len(start)), moves)
        return (_block(self, coordinates, state, moves, moves)[0], moves)

    def advance(self, coordinates: AbstractCoordinates, state: Any, moves: int) -> tuple[Any, Moves]:
        """A scan of all chains side by side."""
        chains, warmed = state
        chains, found = _block(self, coordinates, chains, moves, warmed)
        return (chains, warmed), found


def _kernels(engine: Engine, coordinates: AbstractCoordinates, warm_up: int) -> tuple[Any, Any]:
    """`init` and `sample` of one chain. The density comes as an argument of theirs."""
    init, sample = hmc(potential_fn_gen=lambda given: lambda u: -given.in_type_of(u), algo="NUTS")

    def begin(u: Float[Array, " base"], key: Key[Array, ""]) -> Any:
        return init(
            u,
            warm_up,
            dense_mass=u.shape[0] <= engine.dense,
            target_accept_prob=engine.acceptance,
            max_tree_depth=engine.doublings,
            model_args=(coordinates,),
            rng_key=key,
        )

    return begin, lambda state: sample(state, (coordinates,), {})


@program
def _begin(
    engine: Engine,
    coordinates: AbstractCoordinates,
    start: Float[Array, "chains base"],
    keys: Key[Array, " chains"],
    warm_up: int,
) -> Any:
    begin, _ = _kernels(engine, coordinates, warm_up)
    return jax.vmap(begin)(start, keys)


@program
def _block(
    engine: Engine, coordinates: AbstractCoordinates, state: Any, moves: int, warm_up: int
) -> tuple[Any, Moves]:
    begin, sample = _kernels(engine, coordinates, warm_up)
    # `sample` knows what `init` was called with: what it computes is thrown away.
    jax.eval_shape(begin, state.z[0], jax.random.key(0))

    def move(state: Any, _: None) -> tuple[Any, Moves]:
        state = jax.vmap(sample)(state)
        return state, Moves(state.z, state.diverging, state.num_steps, state.accept_prob)

    return jax.lax.scan(move, state, None, length=moves)
