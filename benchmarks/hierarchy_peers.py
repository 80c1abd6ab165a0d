"""NumPyro's guides on the models of `hierarchies.py`, by their documentation: ELBO against time.

A run is evaluated after given numbers of steps, as far as it gets in `MOST_SECONDS`, or once, at the end
of given processor seconds. What an evaluation takes is not counted.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

# Guides on the state spaces, and after how many steps each is evaluated: as many as gain something.
GUIDES = (
    "AutoNormal",
    "AutoLowRankMultivariateNormal",
    "AutoBatchedLowRankMultivariateNormal",
    "AutoIAFNormal",
)
STEPS = (1000, 2000, 5000, 10_000)
# Guides on models of 10^4 and 10^5 latents, which get as many processor seconds as ours took.
LARGE_GUIDES = ("AutoNormal", "AutoBatchedLowRankMultivariateNormal", "AutoSemiDAIS")
RATE = 1e-2
# Draws of the ELBO at the end, and processor seconds at most: a flow's network for 1,000 states takes
# minutes for some thousand steps.
DRAWS, MOST_SECONDS = 200, 60.0
# Steps of the first round, which compiles.
FIRST = 20


def rows_of(
    name: str, guide: str, model: Any, data: tuple[Any, ...], *, make: Any, seconds: float | None
) -> list[dict[str, object]]:
    """A row for each number of steps that there was time for, or the one at the end of `seconds`."""
    head = {"case": name, "tool": f"NumPyro {guide}", "rate": RATE}
    start = time.perf_counter(), time.process_time()
    try:
        made = make()
        found = list(_trained(model, made, data, start, seconds))
    except (ValueError, RuntimeError, AssertionError) as error:
        return [head | {"steps": 0, "refused": str(error).splitlines()[0][:200]}]
    return [head | row for row in found]


def guide_of(name: str, model: Any, large: Any = None) -> Callable[[], Any]:
    """How a guide of this name is made; `large` has the parts of a model that some ask for."""
    from numpyro.infer import autoguide, init_to_median

    kind = getattr(autoguide, name)
    if name == "AutoSemiDAIS":
        return lambda: kind(
            model,
            large.of_locals,
            autoguide.AutoNormal(large.of_globals, init_loc_fn=init_to_median),
            subsample_plate=large.plate,
        )
    extra = {"batch_ndim": 0 if large is None else large.batched} if "Batched" in name else {}
    return lambda: kind(model, init_loc_fn=init_to_median, **extra)


def _trained(
    model: Any, guide: Any, data: tuple[Any, ...], start: tuple[float, float], seconds: float | None
) -> Iterator[dict[str, object]]:
    import jax
    import jax.random as jr
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO

    svi = SVI(model, guide, numpyro.optim.Adam(RATE), Trace_ELBO())
    state = svi.init(jr.key(0), *data)
    piece = jax.jit(
        lambda state, count: jax.lax.fori_loop(0, count, lambda _, s: svi.update(s, *data)[0], state)
    )

    @jax.jit
    def elbo(params: Any, key: Any) -> Any:
        one = Trace_ELBO()
        losses = jax.lax.map(lambda k: one.loss(k, params, model, guide, *data), jr.split(key, DRAWS))
        return -losses.mean(), losses.std() / math.sqrt(DRAWS)

    taken, pace, outside = 0, math.inf, [0.0, 0.0]
    limit = MOST_SECONDS if seconds is None else seconds
    ends = iter(STEPS) if seconds is None else None
    end = FIRST

    def spent() -> tuple[float, float]:
        return time.perf_counter() - start[0] - outside[0], time.process_time() - start[1] - outside[1]

    while True:
        before = spent()[1]
        state = jax.block_until_ready(piece(state, end - taken))
        # The first round compiles.
        pace = (spent()[1] - before) / (end - taken) if taken else math.inf
        taken, now = end, spent()
        room = max(FIRST, int((limit - now[1]) / pace)) if now[1] < limit else 0
        end = taken + min(taken, room) if ends is None else next(ends, taken)
        if taken > 2 * FIRST and (ends is not None or not room) or not room:
            value, error = elbo(svi.get_params(state), jr.key(1))
            yield {
                "steps": taken,
                "wait": now[0],
                "processor": now[1],
                "elbo": float(value),
                "elbo_error": float(error),
            }
            outside[0], outside[1] = (x + y - z for x, y, z in zip(outside, spent(), now, strict=True))
        if end == taken or end - taken > room:
            return
