"""What is true of a brought model: by formula, by quadrature, or by long chains; stored without draws.

Chains run in the model's easy form until every number and its squared distance from the mean has R-hat
below 1.01 and an effective size above 400: means are then known to 0.05 sds, a fifth of what
counts as right.
Where modes are copies of one another, averages over the copies are looked at, and stored.
"""

import datetime
import json
import resource
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .model import Brought

STORE = Path(__file__).parent.parent / "results" / "brought_reference.json"
MOST_R_HAT, LEAST_SIZE = 1.01, 400
# Divergent transitions, as a share of all, beyond which a part of the posterior may have been missed.
MOST_DIVERGENT = 0.005
CHAINS, WARM_UP, BLOCK, MOST_BLOCKS = 4, 1000, 1000, 10
QUANTILES = (0.05, 0.5, 0.95)
# Points a coordinate of a quadrature.
POINTS = 800
Values = Float[np.ndarray, "chains draws values"]


def words(model: Brought) -> dict[str, Any]:
    """What a reference says of its model apart from numbers; nothing here is expected to warn."""
    return {"about": model.about, "language": model.language, "must_warn": None}


def make(model: Brought, *, seed: int = 0) -> dict[str, Any]:
    """The reference of one model: moments, where they come from, and how well they are known."""
    row = words(model) | {"dim": model.target().dim, "fingerprint": model.fingerprint()}
    row |= {"date": datetime.date.today().isoformat(), "versions": _versions(model)}
    if model.too_large is not None:
        return row | {"good": False, "how": model.too_large}
    if model.exact is not None:
        return row | _by_formula(model)
    if model.grid is not None:
        return row | _by_quadrature(model)
    return row | _by_chains(model, seed)


def _by_formula(model: Brought) -> dict[str, Any]:
    known = model.exact()
    mean, std = (np.concatenate([np.ravel(known[name][i]) for name in model.sites()]) for i in (0, 1))
    means = {name: np.asarray(pair[0])[None] for name, pair in known.items()}
    moments = {"mean": digits(mean, 8), "std": digits(std, 8), "index": list(range(mean.size))}
    return {"good": True, "how": "formula", "names": model.names(means)} | moments


def _by_quadrature(model: Brought) -> dict[str, Any]:
    """Midpoints of a grid on the unconstrained scale."""
    axes = [np.linspace(a, b, 2 * POINTS + 1)[1::2] for a, b in model.grid]
    z = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_density, _ = model.log_density()
    log_weights = np.asarray(jax.jit(jax.vmap(log_density))(z))
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    draws = model.constrained(z)
    values = model.values(draws)
    mean = weights @ values
    std = np.sqrt(weights @ (values - mean) ** 2)
    how = f"quadrature, {POINTS} points a coordinate"
    moments = {"mean": digits(mean, 8), "std": digits(std, 8), "index": list(range(mean.size))}
    return {"good": True, "how": how, "names": model.names(draws)} | moments


def _by_chains(model: Brought, seed: int) -> dict[str, Any]:
    began = processor_seconds()
    block = model.blocks(seed, chains=CHAINS, warmup=WARM_UP, draws=BLOCK)
    parts, divergent, row = [], 0, {}
    for number in range(MOST_BLOCKS):
        found = block()
        divergent += found.divergent
        copies = [found.draws] if model.copies is None else model.copies(found.draws)
        parts.append(np.stack([model.values(draws, lead=2) for draws in copies]))
        row = summary(np.concatenate(parts, axis=2))
        names = model.names(found.draws, lead=2)
        row["names"] = [names[i] for i in row["index"]]
        few = divergent <= MOST_DIVERGENT * CHAINS * BLOCK * (number + 1)
        row |= {"good": row["good"] and few, "divergent": divergent}
        if row["good"]:
            break
    return row | {"processor_seconds": round(processor_seconds() - began, 1)}


def summary(copies: Float[np.ndarray, "copies chains draws values"]) -> dict[str, Any]:
    """Moments of the draws with their Monte Carlo errors, and whether the chains agree."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    std = copies.std(axis=(0, 1, 2))
    # Constants, such as the upper triangle of a Cholesky factor, say nothing.
    index = np.flatnonzero(std > 1e-12)
    copies, std = copies[..., index], std[index]
    mean = copies.mean(axis=(0, 1, 2))
    first, second = copies.mean(axis=0), ((copies - mean) ** 2).mean(axis=0)
    r_hat, size, errors = [], [], []
    for moment in (first, second):
        # Averages over copies can be constant, as a mean that is zero by symmetry is.
        varies = moment.std(axis=(0, 1)) > 1e-9 * std
        r_hat.append(np.ones_like(std))
        size.append(np.full_like(std, np.inf))
        if varies.any():
            r_hat[-1][varies] = split_gelman_rubin(moment[..., varies])
            size[-1][varies] = effective_sample_size(moment[..., varies])
        errors.append(moment.std(axis=(0, 1)) / np.sqrt(size[-1]))
    quantiles = np.quantile(copies, QUANTILES, axis=(0, 1, 2))
    r_hat, size = np.nanmax(r_hat, axis=0), np.nanmin(size, axis=0)
    return {
        "good": bool(r_hat.max() < MOST_R_HAT and size.min() > LEAST_SIZE),
        "how": f"NUTS, {copies.shape[1]} chains of {copies.shape[2]} draws",
        "index": index.tolist(),
        "mean": digits(mean, 8),
        "std": digits(std, 8),
        "mean_error": digits(errors[0], 3),
        "std_error": digits(errors[1] / (2 * std), 3),
        "quantiles": [digits(row, 6) for row in quantiles],
        "r_hat": digits(r_hat, 5),
        "size": digits(np.minimum(size, 1e9), 4),
    }


def processor_seconds() -> float:
    """Of this process and of those it started, compilers for example."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def digits(values: Any, count: int) -> list[float]:
    """Rounded for JSON."""
    return [float(f"{value:.{count}g}") for value in np.asarray(values)]


def _versions(model: Brought) -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("jax", "numpyro", model.language)}


if __name__ == "__main__":
    from . import load

    print(json.dumps({"model": sys.argv[1]} | make(load(sys.argv[1]))))
