"""NumPyro's guides on the models of `hierarchies.py`, by their documentation: ELBO against time.

A run is evaluated after given numbers of steps, as far as it gets in `MOST_SECONDS`, or once, at the end
of given processor seconds. What an evaluation takes is not counted.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

# Guides on the state spaces, and after how many steps each is evaluated, as far as there is time: from
# 5,000 to 10,000 steps AutoNormal still gains thousands of nats on the volatility.
GUIDES = (
    "AutoNormal",
    "AutoLowRankMultivariateNormal",
    "AutoBatchedLowRankMultivariateNormal",
    "AutoIAFNormal",
)
STEPS = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
# Guides on models of 10^4 and 10^5 latents, which get as many processor seconds as ours took.
LARGE_GUIDES = ("AutoNormal", "AutoSemiDAIS", "AutoBatchedLowRankMultivariateNormal")
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

    limit, outside = MOST_SECONDS if seconds is None else seconds, [0.0, 0.0]

    def spent() -> tuple[float, float]:
        return time.perf_counter() - start[0] - outside[0], time.process_time() - start[1] - outside[1]

    # The first round compiles, the second shows the pace.
    state = jax.block_until_ready(piece(state, FIRST))
    before = spent()[1]
    state, taken = jax.block_until_ready(piece(state, FIRST)), 2 * FIRST
    pace = (spent()[1] - before) / FIRST
    ends = [steps for steps in STEPS if pace * steps < limit] or [int(limit / pace)]
    while True:
        # Towards a limit of time in rounds that double, as the pace changes.
        room = int((limit - spent()[1]) / pace)
        count = min(taken, room) if seconds is not None else ends[0] - taken
        if count > 0:
            before = spent()[1]
            state, taken = jax.block_until_ready(piece(state, count)), taken + count
            pace = (spent()[1] - before) / count
        if seconds is not None and count > 0:
            continue
        now = spent()
        value, error = elbo(svi.get_params(state), jr.key(1))
        yield {
            "steps": taken,
            "wait": now[0],
            "processor": now[1],
            "elbo": float(value),
            "elbo_error": float(error),
        }
        after = spent()
        outside = [outside[0] + after[0] - now[0], outside[1] + after[1] - now[1]]
        ends = ends[1:]
        if seconds is not None or not ends:
            return
