"""BlackJAX's NUTS, with its window adaptation, all chains in one program."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ..._util.compiling import program
from ..._util.extras import needs_extra
from ...diagnostics.coordinates import AbstractCoordinates
from .engine import AbstractEngine, Moves

with needs_extra("peers", "BlackJAX's NUTS"):
    import blackjax


class Engine(AbstractEngine):
    """Every chain adapts its own step and mass matrix."""

    def warm(
        self,
        coordinates: AbstractCoordinates,
        start: Float[Array, "chains base"],
        moves: int,
        *,
        key: Key[Array, ""],
    ) -> Any:
        """States and settings of all chains, and a key."""
        key, own = jax.random.split(key)
        return (*_warmed(self, coordinates, start, jax.random.split(own, len(start)), moves), key)

    def advance(self, coordinates: AbstractCoordinates, state: Any, moves: int) -> tuple[Any, Moves]:
        """A scan of all chains side by side."""
        states, settings, key = state
        key, own = jax.random.split(key)
        states, found = _block(self, coordinates, states, settings, own, moves)
        return (states, settings, key), found


@program
def _warmed(
    engine: Engine,
    coordinates: AbstractCoordinates,
    start: Float[Array, "chains base"],
    keys: Key[Array, " chains"],
    moves: int,
) -> tuple[Any, Any]:
    adaptation: Any = blackjax.window_adaptation(
        blackjax.nuts,
        coordinates.in_type_of,
        is_mass_matrix_diagonal=start.shape[1] > engine.dense,
        target_acceptance_rate=engine.acceptance,
        max_num_doublings=engine.doublings,
    )

    def one(u: Float[Array, " base"], key: Key[Array, ""]) -> tuple[Any, Any]:
        (state, settings), _ = adaptation.run(key, u, num_steps=moves)
        # Numbers only: a program takes no others.
        return state, {name: settings[name] for name in ("step_size", "inverse_mass_matrix")}

    return jax.vmap(one)(start, keys)


@program
def _block(
    engine: Engine,
    coordinates: AbstractCoordinates,
    states: Any,
    settings: Any,
    key: Key[Array, ""],
    moves: int,
) -> tuple[Any, Moves]:
    kernel = blackjax.nuts.build_kernel()

    def one(key: Key[Array, ""], state: Any, settings: Any) -> tuple[Any, Any]:
        return kernel(
            key,
            state,
            coordinates.in_type_of,
            settings["step_size"],
            settings["inverse_mass_matrix"],
            engine.doublings,
        )

    def move(states: Any, key: Key[Array, ""]) -> tuple[Any, Moves]:
        keys = jax.random.split(key, jnp.shape(states.logdensity)[0])
        states, info = jax.vmap(one)(keys, states, settings)
        return states, Moves(
            states.position, info.is_divergent, info.num_integration_steps, info.acceptance_rate
        )

    return jax.lax.scan(move, states, jax.random.split(key, moves))
