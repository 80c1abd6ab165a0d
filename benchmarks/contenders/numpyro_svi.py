"""NumPyro's stochastic variational inference with its automatic guides."""

import time
from collections.abc import Iterator
from typing import Any

import jax

from .snapshot import Snapshot, diagonal, low_rank, triangular

STEPS, PIECE, RANK = 20_000, 500, 5
SETTINGS = (
    f"AutoNormal, AutoLowRankMultivariateNormal(rank={RANK}), AutoMultivariateNormal; Trace_ELBO() with "
    f"its one particle, Adam, at most {STEPS:,} steps"
)


def svi(target: Any, family: str, rate: float, *, key: Any) -> Iterator[Snapshot]:
    """`svi.init`, then compiled pieces of `svi.update`, as its documentation has it."""
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model() -> None:
        real = dist.constraints.real_vector
        z: Any = numpyro.sample("z", dist.ImproperUniform(real, (), (target.dim,)))
        numpyro.factor("log density", target.log_density(z))

    guides = {
        "mean-field": lambda: autoguide.AutoNormal(model),
        "low-rank": lambda: autoguide.AutoLowRankMultivariateNormal(model, rank=RANK),
        "full-rank": lambda: autoguide.AutoMultivariateNormal(model),
    }
    began = time.perf_counter()
    guide = guides[family]()
    run = SVI(model, guide, numpyro.optim.Adam(rate), Trace_ELBO())
    state = run.init(key)

    @jax.jit
    def piece(state: Any) -> Any:
        return jax.lax.fori_loop(0, PIECE, lambda _, s: run.update(s)[0], state)

    for steps in range(PIECE, STEPS + 1, PIECE):
        state = jax.block_until_ready(piece(state))
        seconds = time.perf_counter() - began
        yield Snapshot(seconds, steps, _draw(family, guide, run.get_params(state)))
        # What the snapshot cost is not this tool's.
        began += time.perf_counter() - began - seconds


def _draw(family: str, guide: Any, params: Any) -> Any:
    if family == "mean-field":
        return diagonal(params["z_auto_loc"], params["z_auto_scale"])
    if family == "low-rank":
        scale = params["auto_scale"]
        return low_rank(params["auto_loc"], params["auto_cov_factor"] * scale[:, None], scale**2)
    transform = guide.get_transform(params)
    return triangular(transform.loc, transform.scale_tril)
