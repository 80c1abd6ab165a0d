"""What each number of auto's plan buys: fits with every field halved and doubled, and rules off.

Run from the repository:
  python benchmarks/ablate.py run             variants that are not stored, a process for each subject
  python benchmarks/ablate.py run --how off   only the rules that can be switched off
  python benchmarks/ablate.py table           what came out; --write: in docs/ablation.md too

The plan is a value (`print(qg.Auto())`), so that a variant replaces a field of it: nothing is patched.
Subjects are the zoo's models with the family chosen, and the tasks with three families. All fits of a
subject share one process and its compiled programs, so that seconds are those of warm fits, of the
processor, since other work may run beside them. Commands can be stopped and started again: what is
stored is left.
"""

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import zoo
from pages import DOCS, publish
from zoo import reference
from zoo.fitting import moments
from zoo.judging import CORRECTED, classify, errors, needless_warning, trust_is_wrong

import quietgrad as qg
from quietgrad._util.environment import environment

ROWS = Path(__file__).parent / "results" / "ablation.jsonl"
FAMILIES = ("mean-field", "low-rank", "full-rank")
TASKS = ("frisk", "a1a", "breast-cancer", "counts")
# Fields that are sizes of arrays, limits of the user's, parts of the problem, or a verdict's numbers.
LEFT_OUT = {"draw_numbers", "memory_numbers", "most_steps", "steps", "estimator", "by_clock", "gain"}
LEFT_OUT |= {"judged_by"}
# Rules, and the value of their field that switches them off.
OFF: dict[str, Any] = {
    "conclusive": 0.0,
    "gain_each": 0.0,
    "many": 10**9,
    "search.draws": 4,
    "curvature.mean_field_dim": 0,
    "curvature.low_rank_dim": 0,
    "curvature.rounds": 1,
    "curvature.faint": math.inf,
    "curvature.mode.searches": 1,
    "curvature.mode.newton_steps": 1,
    "curvature.mode.narrowings": 0,
    "curvature.newton.full_steps": 1,
    "curvature.newton.clipped_steps": 0,
    "curvature.newton.loss": math.inf,
    "curvature.newton.pulls": 0,
    "anneal.end": 1.0,
    "anneal.growth": 1.0,
    "anneal.probe_share": 0.0,
}
# The same of the numbers by which rungs are judged.
OFF_IN_VERDICTS: dict[str, Any] = {"judged_by.most_moves": 0, "judged_by.flat_weights": 1.0}
# Nats by which an ELBO counts as changed.
WORTH = 0.15
LIMIT = 60.0


def fields(module: eqx.Module, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number of a plan, by its path."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if field.name in LEFT_OUT:
            continue
        if isinstance(value, eqx.Module):
            yield from fields(value, f"{path}{field.name}.")
        elif type(value) in (int, float):
            yield f"{path}{field.name}", value


def changed(module: Any, path: str, value: Any) -> Any:
    """The plan with another value at a path."""
    name, _, rest = path.partition(".")
    inner = changed(getattr(module, name), rest, value) if rest else value
    return dataclasses.replace(module, **{name: inner})


def variants(hows: list[str]) -> Iterator[tuple[str, str, qg.Auto]]:
    """Paths, what is done to them, and the plan."""
    plan = qg.Auto()
    yield "base", "base", plan
    if "off" in hows:
        for path, value in OFF_IN_VERDICTS.items():
            yield path, "off", changed(plan, path, value)
        for kind in dict.fromkeys(map(type, plan.rungs)):
            others = tuple(rung for rung in plan.rungs if type(rung) is not kind)
            yield f"rungs: {kind.__name__}", "off", dataclasses.replace(plan, rungs=others)
    for path, value in fields(plan):
        tried = {"off": OFF.get(path)}
        if type(value) is float:
            tried |= {"half": value / 2, "double": value * 2}
        else:
            tried |= {"half": max(1, value // 2), "double": 2 * value}
        for how in hows:
            if tried[how] is not None and tried[how] != value:
                yield path, how, changed(plan, path, tried[how])


def subjects(models: list[str], tasks: list[str]) -> list[tuple[str, str]]:
    """Names and families."""
    good = reference.read()
    chosen = [(name, "auto") for name in models if good.get(name, {}).get("good")]
    return [*((task, family) for task in tasks for family in FAMILIES), *chosen]


def cell(name: str, family: str, seed: int, hows: list[str]) -> None:
    """All variants of one subject, a line of JSON for each that is not stored."""
    truth = reference.read().get(name)
    target = zoo.load(name).target if family == "auto" else qg.tasks.load(name).train
    stored = {(row["path"], row["how"]) for row in rows() if _of(row) == (name, family, seed)}
    made = environment()["commit"]
    qg.fit(target, family, progress=False, seconds=LIMIT, key=jr.key(seed))
    for path, how, plan in variants(hows):
        if (path, how) in stored:
            continue
        row = {"name": name, "family": family, "seed": seed, "path": path, "how": how, "commit": made}
        row |= fitted(target, family, plan, seed, truth if family == "auto" else None)
        with ROWS.open("a") as file:
            file.write(json.dumps({key: _plain(value) for key, value in row.items()}) + "\n")


def fitted(target: Any, family: str, plan: qg.Auto, seed: int, truth: Any) -> dict[str, Any]:
    """One fit, and its verdict where the truth is known."""
    began = time.process_time()
    result = qg.fit(target, family, method=plan, progress=False, seconds=LIMIT, key=jr.key(seed))
    row = {
        "seconds": time.process_time() - began,
        "elbo": float(result.elbo),
        "status": str(result.status),
        "fitted": type(result.q).__name__,
    }
    if truth is None:
        return row
    found, corrected = result.diagnose(), None
    row |= errors(truth, *moments(result.q, jr.key(1000 + seed)))
    if str(found.verdict) == CORRECTED:
        points = result.posterior(jr.key(2000 + seed), 4000).points
        corrected = errors(truth, points.mean(axis=0), points.std(axis=0))["mean_error"]
    return row | {"verdict": str(found.verdict), "corrected_error": corrected}


def run(models: list[str], tasks: list[str], seeds: list[int], hows: list[str]) -> int:
    """Every subject in a process of its own."""
    faults = 0
    for seed in seeds:
        for name, family in subjects(models, tasks):
            call = [sys.executable, __file__, "cell", name, family, str(seed), *hows]
            done = subprocess.run(call, capture_output=True, text=True)
            if done.returncode:
                faults += 1
                print(f"{name}, {family}: {done.stderr.strip().splitlines()[-1][:200]}", flush=True)
            print(f"{name}, {family}, seed {seed}: {len(rows())} rows", flush=True)
    return int(faults > 0)


def table() -> list[str]:
    """A row for each variant: what changed against the plan as it is."""
    by = defaultdict(dict)
    for row in rows():
        by[row["path"], row["how"]][_of(row)] = row
    base, truths = by.pop(("base", "base"), {}), reference.read()
    lines = [
        "| field | value | fits | worse | better | right | silent | trust, wrong | needless | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    subjects = [f"{name} ({family})" for name, family, _ in sorted(base)]
    for (path, how), found in sorted(by.items()):
        pairs = [(base[of], row) for of, row in found.items() if of in base]
        gains = [(_height(new) - _height(old)) for old, new in pairs]
        known = [(old, new, truths[new["name"]]) for old, new in pairs if "verdict" in new]
        right = sum(_is(new, t, "right") - _is(old, t, "right") for old, new, t in known)
        silent = sum(_is(new, t, "silent") - _is(old, t, "silent") for old, new, t in known)
        wrong = sum(trust_is_wrong(new) - trust_is_wrong(old) for old, new, _ in known)
        needless = sum(needless_warning(new) - needless_warning(old) for old, new, _ in known)
        ratio = sum(new["seconds"] for _, new in pairs) / max(1e-9, sum(o["seconds"] for o, _ in pairs))
        counts = f"{sum(g < -WORTH for g in gains)} | {sum(g > WORTH for g in gains)}"
        lines.append(
            f"| `{path}` | {how} | {len(pairs)} | {counts} | {right:+d} | {silent:+d} | {wrong:+d} | "
            f"{needless:+d} | {ratio:.2f} |"
        )
    return [*lines, "", f"{len(subjects)} subjects: {', '.join(subjects)}."]


def rows() -> list[dict[str, Any]]:
    """What is stored."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def _of(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["name"], row["family"], row["seed"]


def _height(row: dict[str, Any]) -> float:
    return -1e300 if row["elbo"] is None else row["elbo"]


def _is(row: dict[str, Any], truth: dict[str, Any], kind: str) -> bool:
    return classify(row, truth) == kind


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def main() -> int:
    """Run the command that was asked for."""
    jax.config.update("jax_enable_x64", True)
    if sys.argv[1:2] == ["cell"]:
        cell(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("--how", nargs="+", default=["off", "half", "double"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", default=list(zoo.REGISTRY), choices=zoo.REGISTRY)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/ablation.md")
    given = parser.parse_args()
    if given.command == "run":
        return run(given.models, given.tasks, given.seeds, given.how)
    lines = table()
    print("\n".join(lines))
    if given.write:
        publish("ablation", lines, DOCS / "ablation.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
