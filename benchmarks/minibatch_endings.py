"""How minibatch fits end: the ELBO, the ending, and the wait, beside NumPyro's SVI with 10,000 steps.

A network 64-50-10 on scikit-learn's digits (3,760 weights, 1,500 rows, batches of 128) with tanh or ReLU
units, and a logistic regression like forest cover (50,000 simulated rows, 54 predictors, batches of
256). Fits run one after the other in this process, cold. Processor seconds count as well as the wait:
on a machine that does other work only the former mean anything. SVI's ELBO is that of its parameters at
the same evaluator.

Run from the repository: python benchmarks/minibatch_endings.py [--models digits cover] [--seeds 1]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from rich.console import Console
from rich.table import Table

import quietgrad as qg

STEPS, RATE, HIDDEN = 10_000, 0.005, 50
# Draws by which answers of both are compared.
DRAWS = 400


class Model:
    """A prior N(0, 1) on every weight, the log likelihood of rows, data and the rows of a step."""

    def __init__(self, example: Any, log_likelihood: Callable[..., jax.Array], data: Any, batch: int):
        self.flat, self.unravel = ravel_pytree(example)
        self.log_likelihood, self.data, self.batch = log_likelihood, data, batch
        self.rows = len(data[0])

    def target(self) -> qg.Target:
        """For quietgrad."""
        size = self.flat.size
        return qg.Target(
            lambda z: -0.5 * jnp.sum(z**2) - 0.5 * size * jnp.log(2 * jnp.pi),
            lambda z, data: self.log_likelihood(self.unravel(z), *data),
            self.data,
            dim=size,
        )

    def numpyro(self, x: jax.Array, y: jax.Array) -> None:
        """For SVI."""
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([self.flat.size]).to_event(1))
        with numpyro.plate("rows", self.rows, subsample_size=self.batch) as rows:
            numpyro.factor("y", self.log_likelihood(self.unravel(z), x[rows], y[rows]))


def digits(unit: Callable[[jax.Array], jax.Array] = jnp.tanh) -> Model:
    """Images of 8 x 8 pixels, scaled to [0, 1]; one hidden layer of these units."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = np.float32(images[:1500] / 16), np.int32(labels[:1500])
    example = {
        "a": jnp.zeros((64, HIDDEN)),
        "b": jnp.zeros(HIDDEN),
        "c": jnp.zeros((HIDDEN, 10)),
        "d": jnp.zeros(10),
    }

    def log_likelihood(w: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        hidden = unit(x @ w["a"] + w["b"][None])
        logits = jax.nn.log_softmax(hidden @ w["c"] + w["d"][None])
        return jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0]

    return Model(example, log_likelihood, (x, y), 128)


def cover() -> Model:
    """A logistic regression of the size of forest cover, simulated."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50_000, 54)).astype(np.float32)
    x[:, 10:] = x[:, 10:] > 1.5
    chance = 1 / (1 + np.exp(-x @ rng.normal(size=54) * 0.5))
    y = np.float32(rng.random(50_000) < chance)

    def log_likelihood(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return y * (x @ w) - jnp.logaddexp(0.0, x @ w)

    return Model(jnp.zeros(54), log_likelihood, (x, y), 256)


MODELS = {"digits": digits, "digits-relu": lambda: digits(jax.nn.relu), "cover": cover}


def ours(model: Model, seed: int) -> dict[str, Any]:
    """A fit by `auto`, with what it says."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = qg.fit(model.target(), batch_size=model.batch, progress=False, key=jr.key(seed))
    spent = time.process_time() - cpu, time.perf_counter() - wall
    words = f"{result.status}: {result.hint}"
    return _row("quietgrad", model, result.q, result.steps, spent, words)


def svi(model: Model, seed: int) -> dict[str, Any]:
    """NumPyro's SVI with its mean-field guide."""
    cpu, wall = time.process_time(), time.perf_counter()
    guide = AutoNormal(model.numpyro, init_scale=0.1)
    run = SVI(model.numpyro, guide, numpyro.optim.Adam(RATE), Trace_ELBO())
    found = run.run(jr.key(seed), STEPS, *map(jnp.asarray, model.data), progress_bar=False)
    jax.block_until_ready(found.params)
    spent = time.process_time() - cpu, time.perf_counter() - wall
    std = jnp.log(found.params["z_auto_scale"])
    q = qg.MeanField(found.params["z_auto_loc"], std)
    return _row("NumPyro SVI", model, q, STEPS, spent, f"{STEPS:,} steps")


def _row(
    tool: str, model: Model, q: Any, steps: int, spent: tuple[float, float], words: str
) -> dict[str, Any]:
    elbo, error = qg.elbo_with_error(model.target(), q, draws=DRAWS, key=jr.key(99))
    figures = {"elbo": float(elbo), "error": float(error), "cpu": spent[0], "wall": spent[1]}
    return {"tool": tool, "steps": steps, "words": words, **figures}


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--no-svi", action="store_true")
    given = parser.parse_args()
    for name in given.models:
        model = MODELS[name]()
        table = Table(title=f"{name}: {model.flat.size:,} coordinates, {model.rows:,} rows")
        for column in ("", "seed", "ELBO", "steps", "cpu s", "wall s", "ending"):
            table.add_column(column)
        for seed in range(given.seeds):
            for tool in (ours,) if given.no_svi else (ours, svi):
                row = tool(model, seed)
                elbo = f"{row['elbo']:,.1f} ± {row['error']:.1f}"
                spent = f"{row['cpu']:.1f}", f"{row['wall']:.1f}"
                table.add_row(row["tool"], str(seed), elbo, f"{row['steps']:,}", *spent, row["words"])
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
