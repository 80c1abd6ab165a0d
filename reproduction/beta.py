"""QuadCV's coefficient on the way, what it is worth, and the bias of fitting it in-sample.

Run from the repository: python reproduction/beta.py [--tasks redwine] [--families mean-field]
Runs QuadCV with ten draws from a start of the grid and stores at a number of steps: beta, the variance
ratio with it, and the ratio that beta = 1 would have had. Then, early and at the end of the run, squared
bias, variance and mean squared error with beta from earlier steps and with beta fitted in-sample.
Written to beta.json with the environment.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import optax

import quietgrad as qg
from quietgrad._util.environment import environment
from quietgrad.estimators.surrogates.quadcv.coefficient import Averages, Products
from quietgrad.evaluation.gradient_noise import gradient_error, gradient_variance, variance_ratio
from quietgrad.study.adapter import Method, run_method
from quietgrad.study.jobs import seed_of

HERE = Path(__file__).parent
PATH = HERE / "beta.json"
STEPS = {"a1a": 12_000, "frisk": 48_000, "redwine": 36_000, "redwine-mini": 36_000}
FAMILIES = ("mean-field", "low-rank", "real-nvp")
DRAWS = 10
EVALUATIONS = 120
# The evaluations that are stored: dense where beta changes.
STORED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 60, 70, 80, 90, 100, 110, 120)
REPEATS = 100
BIAS_REPEATS = 4_000
EARLY = 6


def with_beta(state: Any, beta: float) -> Any:
    """The estimator's state with averages that give this beta."""
    surrogate = state.surrogate
    one = jnp.ones_like(surrogate.averages.products.square)
    averages = Averages(Products(-beta * one, one), jnp.zeros((), bool))
    return state._replace(surrogate=surrogate._replace(averages=averages))


def path(task: str, family: str, repeats: int) -> dict[str, Any]:
    """One run: beta and the two variance ratios at the steps in `STORED`; then the bias."""
    loaded, steps = qg.tasks.load(task), STEPS[task] if family != "real-nvp" else STEPS[task] // 2
    rate = loaded.learning_rate(family)
    key_start, key_fit, key_noise, _ = jr.split(jr.key(seed_of(task, family, 0)), 4)
    estimator = qg.estimator("quadcv", draws=DRAWS, rate=rate)
    start = qg.families.named(family).init(loaded.dim, key=key_start)
    every, found, kept = steps // EVALUATIONS, [], {}

    def at(q: Any, state: Any, step: int) -> dict[str, float]:
        place = round(step / every)
        if step == 0 or place not in STORED or state is None:
            return {}
        averages = state.surrogate.averages.products
        how = {"repeats": REPEATS, "batch_size": loaded.batch_size, "key": jr.fold_in(key_noise, step)}
        ratios = [
            float(variance_ratio(loaded.train, q, estimator, state=each, **how).ratio)
            for each in (state, with_beta(state, 1.0))
        ]
        found.append([step, float(-averages.cross / (averages.square + 1e-6)), *ratios])
        if place in (EARLY, EVALUATIONS):
            kept["early" if place == EARLY else "end"] = (q, state)
        return {}

    run_method(
        Method(qg.Sgd(estimator, optax.adam(rate)), estimator),
        loaded.train,
        start,
        batch_size=loaded.batch_size,
        steps=steps,
        evaluate_every=every,
        elbo_draws=100,
        callback=at,
        key=key_fit,
    )
    bias = []
    if loaded.batch_size is None and family != "real-nvp":
        bias = [
            row
            for where, (q, state) in kept.items()
            for row in biases(loaded.train, q, state, where, repeats)
        ]
    return {"task": task, "family": family, "draws": DRAWS, "rate": rate, "path": found, "bias": bias}


def biases(target: Any, q: Any, state: Any, where: str, repeats: int) -> list[dict[str, Any]]:
    """Squared bias and variance with beta from earlier steps and in-sample, over NoCV's variance."""
    key = jr.key(2)
    plain = gradient_variance(
        target, q, qg.estimator("nocv", draws=DRAWS), repeats=repeats, key=jr.split(key)[0]
    )
    rows = []
    for label, beta in (("lagged", "lagged"), ("in-sample", "in-sample")):
        estimator = qg.estimator("quadcv", draws=DRAWS, beta=beta)
        error = gradient_error(
            target, q, estimator, state=state, repeats=repeats, reference_repeats=repeats, key=key
        )
        # The same draws as those of `error` and of `plain`.
        ratio = variance_ratio(target, q, estimator, state=state, repeats=repeats, key=jr.split(key)[0])
        total = float(plain.total)
        rows.append(
            {
                "where": where,
                "label": label,
                "repeats": repeats,
                "bias_squared": float(error.bias_squared) / total,
                "bias_error": float(error.bias_error) / total,
                "variance": float(error.variance) / total,
                "variance_error": float(ratio.error),
            }
        )
    return rows


def main() -> None:
    """Measure, and merge into what is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(STEPS))
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--repeats", type=int, default=BIAS_REPEATS)
    parser.add_argument("--out", type=Path, default=PATH)
    arguments = parser.parse_args()
    for family in arguments.families:
        for task in arguments.tasks:
            row = path(task, family, arguments.repeats)
            known = (
                json.loads(arguments.out.read_text("utf-8"))["rows"] if arguments.out.exists() else []
            )
            rows = [r for r in known if (r["task"], r["family"]) != (task, family)] + [row]
            lines = ",\n".join(json.dumps(_rounded(each)) for each in rows)
            about = json.dumps({"format": 1, "environment": environment()})
            arguments.out.write_text(f'{about[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
            print(task, family, row["path"][-1:], row["bias"], flush=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
