"""Reference moments: by formula where there is one, by long NUTS chains elsewhere, stored as JSON.

Chains run in the coordinates of the model's view and are mapped back. They go on until every coordinate,
and its squared distance from the mean, has R-hat below 1.01 and an effective size above 1000.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from .model import Model

STORE = Path(__file__).parent.parent / "results" / "zoo_reference.json"
MOST_R_HAT, LEAST_SIZE = 1.01, 1000
CHAINS, WARM_UP, BLOCK, MOST_BLOCKS = 4, 1500, 2500, 12
Draws = Float[np.ndarray, "chains draws dim"]


def read(store: Path = STORE) -> dict[str, Any]:
    """All stored references, by the model's name."""
    return json.loads(store.read_text()) if store.exists() else {}


def write(references: dict[str, Any], store: Path = STORE) -> None:
    """Store them, one model a line, all at once."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in references.items())
    part = store.with_suffix(".part")
    part.write_text(f"{{\n{lines}\n}}\n")
    os.replace(part, store)


def is_current(model: Model, row: dict[str, Any] | None) -> bool:
    """Whether a stored reference is of this very model, and good enough."""
    if row is None or not row["good"]:
        return False
    return same(row["fingerprint"], model.fingerprint())


def same(stored: list[float], fingerprint: list[float]) -> bool:
    """Whether two fingerprints are of the same density, up to rounding."""
    return bool(np.allclose(stored, fingerprint, rtol=1e-6, atol=1e-6))


def words(model: Model) -> dict[str, Any]:
    """What a reference says of its model apart from numbers."""
    return {"about": model.about, "source": model.source, "must_warn": model.must_warn}


def make(model: Model, *, seed: int = 0) -> dict[str, Any]:
    """The reference of one model: moments, where they come from, and how well they are known."""
    row = words(model) | {"dim": model.dim, "fingerprint": model.fingerprint()}
    if not model.proper:
        return row | {"good": True, "how": "no moments exist"}
    if model.exact is not None:
        moments = {"mean": model.exact.mean.tolist(), "std": model.exact.std.tolist()}
        return row | {"good": True, "how": model.exact.how} | moments
    return row | _by_chains(model, jr.key(seed))


def _by_chains(model: Model, key: jax.Array) -> dict[str, Any]:
    from numpyro.infer import MCMC, NUTS

    began = time.perf_counter()
    key_start, key = jr.split(key)
    start = _uphill(model)[None] + 0.1 * jr.normal(key_start, (CHAINS, model.dim))
    kernel = NUTS(
        potential_fn=lambda u: -model.view_density(u),
        dense_mass=True,
        target_accept_prob=model.accept,
    )
    chains = MCMC(
        kernel,
        num_warmup=WARM_UP,
        num_samples=BLOCK,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    from_view = jax.jit(jax.vmap(jax.vmap(model.from_view)))
    blocks, divergent = [], 0
    row: dict[str, Any] = {}
    while len(blocks) < MOST_BLOCKS:
        key, key_run = jr.split(key)
        chains.run(key_run, init_params=start, extra_fields=("diverging",))
        chains.post_warmup_state = chains.last_state
        blocks.append(np.asarray(from_view(chains.get_samples(group_by_chain=True))))
        divergent += int(np.sum(chains.get_extra_fields()["diverging"]))
        row = summary(model, np.concatenate(blocks, axis=1))
        if row["good"]:
            break
    return row | {"divergent": divergent, "seconds": round(time.perf_counter() - began, 1)}


def _uphill(model: Model) -> Float[Array, " dim"]:
    """A point uphill of the model's start: a chain that begins in a steep place may never leave it."""
    start = np.zeros(model.dim) if model.start is None else model.start
    slopes = jax.jit(jax.value_and_grad(lambda u: -model.view_density(u)))

    def loss(u: Float[np.ndarray, " dim"]) -> tuple[float, Float[np.ndarray, " dim"]]:
        value, grad = slopes(jnp.asarray(u))
        return (float(value), np.asarray(grad)) if np.isfinite(value) else (1e10, np.zeros_like(u))

    return jnp.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 50}).x)


def summary(model: Model, z: Draws) -> dict[str, Any]:
    """Moments of the draws with their Monte Carlo errors, and whether the chains have mixed."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    copies = [z]
    if model.mirror is not None:
        copies.append(np.asarray(jax.vmap(jax.vmap(model.mirror))(jnp.asarray(z))))
    mean = np.mean(copies, axis=(0, 1, 2))
    squares = np.mean([(copy - mean) ** 2 for copy in copies], axis=0)
    std = np.sqrt(np.mean(squares, axis=(0, 1)))
    own = (z - z.mean(axis=(0, 1))) ** 2
    r_hat = np.maximum(split_gelman_rubin(z), split_gelman_rubin(own))
    size, size_squares = effective_sample_size(z), effective_sample_size(own)
    mean_error = np.std(np.mean(copies, axis=0), axis=(0, 1)) / np.sqrt(size)
    std_error = np.std(squares, axis=(0, 1)) / np.sqrt(size_squares) / (2 * std)
    least = min(size.min(), size_squares.min())
    return {
        "good": bool(r_hat.max() < MOST_R_HAT and least > LEAST_SIZE),
        "how": f"NUTS, {z.shape[0]} chains of {z.shape[1]} draws",
        "mean": _digits(mean, 12),
        "std": _digits(std, 8),
        "mean_error": _digits(mean_error, 3),
        "std_error": _digits(std_error, 3),
        "r_hat": _digits(r_hat, 5),
        "size": _digits(size, 5),
        "size_of_squares": _digits(size_squares, 5),
    }


def _digits(values: Any, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in np.asarray(values)]
