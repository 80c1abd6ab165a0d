"""Observed variables of a PyMC model drawn anew, for draws of which some may have no data to draw."""

import warnings

import numpy as np
import pymc
import xarray

# Halves of draws that are tried to find those that cannot be drawn from: each compiles a function.
MOST_HALVES = 40


def predicted(model: pymc.Model, draws: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Observed variables for each draw; NaN, with a warning, where there are none.

    NumPy refuses an invalid parameter, such as a negative scale, and PyMC all draws with it. So they are
    halved until the rest can be drawn from, at most `MOST_HALVES` times.
    """
    try:
        return _sampled(model, draws, seed)
    except ValueError as error:
        refused = str(error).splitlines()[0]
    count = len(next(iter(draws.values())))
    middle, found, halves = count // 2, {}, 0
    parts = [(0, middle), (middle, count)] if count > 1 else []
    # The longest first: what is left when they have been tried often enough is little.
    while parts and halves < MOST_HALVES:
        first, last = parts.pop(0)
        halves += 1
        try:
            some = {name: x[first:last] for name, x in draws.items()}
            found[first, last] = _sampled(model, some, seed + halves)
        except ValueError:
            middle = (first + last) // 2
            parts += [(first, middle), (middle, last)] if last - first > 1 else []
    if not found:
        raise ValueError(f"the model draws no data for any of the {count:,} draws: {refused}")
    known = np.zeros(count, bool)
    made: dict[str, np.ndarray] = {}
    for (first, last), values in found.items():
        known[first:last] = True
        for name, value in values.items():
            whole = made.setdefault(name, np.full((count, *value.shape[1:]), np.nan))
            whole[first:last] = value
    warnings.warn(
        f"the model draws no data for {np.sum(~known):,} of {count:,} draws ({refused}); their "
        "predictions are NaN",
        stacklevel=4,
    )
    return made


def _sampled(model: pymc.Model, draws: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    chain = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(x.ndim - 1))), x[None])
        for name, x in draws.items()
    }
    drawn = pymc.sample_posterior_predictive(
        xarray.Dataset(chain),
        model=model,
        random_seed=seed,
        progressbar=False,
        return_inferencedata=False,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    return {name: np.asarray(value)[0] for name, value in drawn.items()}
