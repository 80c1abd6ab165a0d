"""What the published study finds beside the paper's claims, as sentences that are checked.

Each finding computes its numbers from the stored results, writes its text with them, and says whether
the words of the text are true.
"""

import functools
import json
from collections.abc import Callable, Iterable

import numpy as np
from conclusion import DRAWS, Sentence, listed, signed
from results import FAMILIES, HERE, PLACES, TASKS, Key, Results, clearly, judge, paper, plain

from quietgrad.evaluation.arrival import held_index
from quietgrad.report.names import label_name
from quietgrad.study.interval import Interval
from quietgrad.study.plateau import late_elbo
from quietgrad.study.records import Record
from quietgrad.study.summary import NOISE

MISSING = Sentence("(not run yet)", holds=False, evidence="rows are missing")
CRITERIA = ("squared norm", "intercept", "pairwise")


def beta_paths() -> dict[tuple[str, str], np.ndarray]:
    """Step, beta, variance ratio with it and with beta = 1, by task and family; from beta.json."""
    path = HERE / "beta.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return {(row["task"], row["family"]): np.array(row["path"]) for row in rows}


def beta(results: Results) -> Sentence:
    """Whether the fitted beta is a switch: what it was where the quadratic was poor, and beta = 1."""
    del results
    paths = beta_paths()
    points = np.concatenate(list(paths.values()))
    poor, good = points[points[:, 2] > 0.9], points[points[:, 2] < 0.5]
    off = float(np.mean(np.abs(poor[:, 1]) < 0.1))
    networks = np.concatenate([path for (task, _), path in paths.items() if "redwine" in task])
    shrunk = float(np.median(networks[networks[:, 2] > 0.9][:, 1]))
    low, high = np.quantile(good[:, 1], (0.05, 0.95))
    loss = float(np.max(points[:, 3] / points[:, 2])) - 1
    alike = float(np.mean(np.abs(points[:, 3] / points[:, 2] - 1) < 0.1))
    text = (
        f"Recorded at {len(points)} steps of {len(paths)} runs of QuadCV with ten draws. Where the "
        f"quadratic is poor (variance ratio above 0.9, {len(poor)} of the steps), beta is almost zero "
        f"(below 0.1 in size) in {off:.0%} of them. On the networks it shrinks there (median "
        f"{shrunk:.2f}); on frisk, whose start is far off, it begins at {np.max(points[:, 1]):,.0f} and "
        "makes up for a quadratic that is still too flat. Where the quadratic is good (ratio below "
        f"0.5), beta is near one: {low:.2f} to {high:.2f} in nine tenths of the steps. So it is seldom "
        "a switch, and little depends on it: beta = 1 would have changed the variance by less than "
        f"10% in {alike:.0%} of the steps, and raised it by {loss:.0%} at most."
    )
    true = off < 0.5 and 0.1 < shrunk < 0.9 and 0.9 < low < high < 1.1 and alike > 0.9
    return Sentence(text, true, f"{off}, {shrunk}, {low}, {high}, {alike}")


def inner_descent(results: Results) -> Sentence:
    """How far four inner steps of ZVCV-GD go: exact in the eigenvalues of the draws' Gram matrix."""
    del results
    first = {
        name: [inner_share(dim, draws, 1, sets)[0] for draws in DRAWS]
        for name, dim, sets in (("frisk", 37, 400), ("a1a", 120, 400), ("the networks", 653, 40))
    }
    sets = 4_000
    second, diverges = inner_share(37, 10, 2, sets)
    error = (diverges * (1 - diverges) / sets) ** 0.5
    told = "; ".join(
        f"{name} {100 * few:.1f}% and {100 * many:.1f}%" for name, (few, many) in first.items()
    )
    text = (
        "Along an eigenvector of the draws' Gram matrix with eigenvalue λ, m inner steps at rate γ go "
        "1 − (1 − 2γλ/L)^m of the way to least squares. For the paper's γ = 0.001 and m = 4, on "
        f"average over eigenvectors and for L = 10 and 50: {told}. Second order on frisk (740 columns, "
        f"L = 10) goes {100 * second:.0f}% of the way, and in {100 * diverges:.1f}% of the steps (± "
        f"{164 * error:.1f}) its descent diverges (2γλ/L > 2)."
    )
    return Sentence(text, second > 0.5 and 0 < diverges < 0.05, f"{first}, {second}, {diverges}")


@functools.cache
def inner_share(dim: int, draws: int, order: int, sets: int) -> tuple[float, float]:
    """The mean share of the way, and in how many sets of draws the descent diverges (seeded draws)."""
    rng = np.random.default_rng(0)
    shares, diverged = [], 0
    for _ in range(sets):
        e = rng.standard_normal((draws, dim))
        columns = [-e]
        if order == 2:
            i, j = np.triu_indices(dim, 1)
            columns += [2 - 2 * e**2, -2 * e[:, i] * e[:, j]]
        # The intercept is descended on, too.
        design = np.concatenate([np.ones((draws, 1)), *columns], axis=1)
        values = np.linalg.eigvalsh(design @ design.T)
        speed = 2 * 0.001 * values[values > 1e-6 * values[-1]] / draws
        shares.append(float(np.mean(1 - (1 - speed) ** 4)))
        diverged += bool(speed[-1] > 2)
    return float(np.mean(shares)), diverged / len(shares)


def entropy(results: Results) -> Sentence:
    """What closed and STL entropy gain for QuadCV at rank 5, over the sampled one."""
    gains: dict[str, dict[str, Interval]] = {"closed": {}, "stl": {}}
    for how, known in gains.items():
        for task in TASKS:
            sampled: Key = ("entropy", "quadcv", 10)
            gain = results.gain(task, "low-rank", ("entropy", f"quadcv {how}", 10), sampled)
            if gain is not None and gain.reps > 1:
                known[task] = gain
    if not all(gains.values()):
        return MISSING
    told = {
        how: "; ".join(f"{task} {gain.middle:+.2f} ({_range(gain)})" for task, gain in known.items())
        for how, known in gains.items()
    }
    above = {how: sum(clearly(gain) > 0 for gain in known.values()) for how, known in gains.items()}
    below = {how: sum(clearly(gain) < 0 for gain in known.values()) for how, known in gains.items()}
    count = len(gains["stl"])
    text = (
        f"Over QuadCV with the entropy sampled, STL gains clearly on {above['stl']} of {count} models "
        f"and loses on {_none(below['stl'])} (nats, 90% interval: {told['stl']}); the closed form gains "
        f"clearly on {above['closed']} and loses on {_none(below['closed'])} ({told['closed']}). So "
        "f − log *q* can be followed, and whether that beats the closed form depends on the model."
    )
    both = {task: gains["stl"][task].middle - gains["closed"][task].middle for task in gains["stl"]}
    mixed = min(both.values()) < 0 < max(both.values())
    return Sentence(signed(text), above["stl"] > 0 and mixed, f"{told}, {both}")


def criteria(results: Results) -> Sentence:
    """Whether the criterion matters, and whether one coefficient for each parameter pays."""
    apart, gains, quieter = [], {}, []
    for task in TASKS:
        rows = {
            (name, how): results.runs(task, "mean-field", ("beta", f"{name}, {how}", 10))
            for name in CRITERIA
            for how in ("shared", "per dimension")
        }
        if not all(rows.values()):
            continue
        place = (task, "mean-field")
        shared = [results.level(*place, ("beta", f"{name}, shared", 10)) for name in CRITERIA]
        middles = [level.middle for level in shared if level is not None]
        apart.append(max(middles) - min(middles))
        for name in CRITERIA:
            each: Key = ("beta", f"{name}, per dimension", 10)
            one: Key = ("beta", f"{name}, shared", 10)
            gain = results.gain(*place, each, one)
            ratios = [results.ratio(*place, key) for key in (each, one)]
            if gain is not None and all(ratio is not None for ratio in ratios):
                gains[task, name] = gain
                quieter.append(ratios[0].middle / ratios[1].middle)
    if not gains:
        return MISSING
    middles = [gain.middle for gain in gains.values()]
    text = (
        f"With one coefficient for all parameters, the three criteria end within {max(apart):.2g} nats "
        f"of each other on all {len(apart)} models. One coefficient for each parameter changes where a "
        f"run ends by {min(middles):+.2f} to {max(middles):+.2f} nats ({len(middles)} pairs of model "
        f"and criterion), and its late variance is {min(quieter):.2f} to {max(quieter):.2f} times that "
        "of the shared one. So neither choice matters here."
    )
    return Sentence(signed(text), max(*apart, *map(abs, middles)) < 0.5, f"{apart}, {gains}")


RATES = ("0.1", "0.01", "0.001", "0.0001")


def rates(results: Results) -> Sentence:
    """Which of the paper's four learning rates ends highest, beside the one that it chose."""
    better, total, first, smaller = {}, 0, 0, True
    for task, family in PLACES:
        keys: list[Key] = [("rates", f"nocv, rate {name}", None) for name in RATES]
        runs = [next(iter(results.runs(task, family, key).values()), None) for key in keys]
        known = {name: run for name, run in zip(RATES, runs, strict=True) if run is not None}
        chosen = "0.001" if family == "real-nvp" and "redwine" in task else "0.01"
        if len(known) < len(RATES):
            continue
        total += 1
        ends = {name: late_elbo(run) for name, run in known.items()}
        best = max(ends, key=lambda name: ends[name])
        arrivals = {name: held_index(run.elbo, ends[best] - 10) for name, run in known.items()}
        when = {name: known[name].column("step")[at] for name, at in arrivals.items() if at is not None}
        first += bool(when) and min(when, key=lambda name: when[name]) == chosen
        if best != chosen:
            smaller &= RATES.index(best) == RATES.index(chosen) + 1
            where = f"{task} {FAMILIES[family]}"
            better[where] = f"{best}, {ends[best] - ends[chosen]:+.1f} nats"
    text = (
        f"The paper's rate ends highest in {total - len(better)} of {total} settings, and is the first "
        f"within 10 nats of the best of the four in {first}. Where another rate ends higher, it is the "
        f"next smaller one: {listed(f'{where} ({told})' for where, told in better.items())}."
    )
    return Sentence(signed(text), total > 4 and bool(better) and smaller, f"{better}, {first}")


def judges(results: Results) -> Sentence:
    """How far the two judges are apart on the same rows."""
    gaps = judged_twice(results)
    clear = {key: gap for key, gap in gaps.items() if clearly(gap)}
    gauss = [
        abs(gap.middle) for key, gap in gaps.items() if key[1] != "real-nvp" and "mini" not in key[0]
    ]
    told = listed(
        f"{task} {FAMILIES[family]} {'QuadCV' if label == 'quadcv' else 'NoCV'} by {gap.middle:+.2f}"
        for (task, family, label), gap in clear.items()
    )
    fresh = [run for run in results.study.done if "fresh" in str(run.outcome.get("judge"))]
    others = other_draws(results)
    names = dict.fromkeys(label_name(run.cell.label) for run in others)
    text = (
        f"Two judges evaluated the ELBO. The grid ({len(fresh)} cells) took 500 fresh draws at every "
        f"evaluation, the other {len(results.study.done) - len(fresh)} cells 500 draws in antithetic "
        "pairs that are the same at every evaluation, corrected by 8,000 fresh ones at the answer. Both "
        "estimate the same number. "
        f"Of {len(gaps)} rows that both judged, {len(clear)} "
        f"{'differs' if len(clear) == 1 else 'differ'} clearly{f' ({told})' if clear else ''}; with 90% "
        f"intervals chance alone makes {0.1 * len(gaps):.0f} of so many. With Gaussian families and "
        f"without mini-batches the two are {max(gauss):.2f} nats apart at most. Every difference in "
        "the tables and sentences is between rows of one judge (`results.py` refuses others). Where "
        "rows of both are compared, the best rows of the networks above all, it is by how far each ends "
        "above plain gradients of its own judge. Only the marks of *When they arrive*, and the lines of "
        "a figure, are of both. Rows of a repetition share the draws of their judge, but for "
        f"{len(others)} older cells ({listed(names)} with a Gaussian family), whose differences have "
        "the noise of two sets of draws, and intervals that contain it."
    )
    return Sentence(signed(text), max(gauss) < 1 and len(clear) <= len(gaps) / 2, f"{gaps}")


def other_draws(results: Results) -> list[Record]:
    """Cells of the second judge whose first ELBO, that of the start, is not that of plain gradients.

    Starts are the same, so the draws are not.
    """
    found = []
    for run in results.study.done:
        cell = run.cell
        if cell.ends_itself or cell.family not in FAMILIES or cell.group == NOISE:
            continue
        base = results.runs(cell.task, cell.family, plain(cell.family)).get(cell.rep)
        if base is not None and judge(base) == judge(run):
            own, theirs = (float(each.column("elbo")[0]) for each in (run, base))
            if abs(own - theirs) > 1e-5 * abs(theirs):
                found.append(run)
    return found


def judged_twice(results: Results) -> dict[tuple[str, str, str], Interval]:
    """Rows that both judges have: by fixed pairs minus by fresh draws, paired."""
    found = {}
    for task, family in PLACES:
        for label in ("nocv", "quadcv"):
            group = plain(family)[0]
            gap = results.gain(task, family, (group, label, 10), paper(label, 10), across_judges=True)
            if gap is not None and gap.reps > 1:
                found[task, family, label] = gap
    return found


def clock(results: Results) -> Sentence:
    """Where seconds come from: the commits of trajectories, of the timing pass and of `auto`."""
    timing = results.study.timing
    assert timing is not None
    passes = [each.environment for each in timing.passes]
    steps = listed(dict.fromkeys(_commit(each) for each in passes))
    grid = [run for run in results.study.main if not run.cell.ends_itself]
    autos = [run for run in results.study.main if run.cell.label == "auto"]
    text = (
        "Seconds are steps times the time of a step. Trajectories ran beside other work, so their own "
        "seconds mean nothing; the time of a step was measured apart, alone on the machine, each row "
        f"{_rounds(timing)} times, in turns. Trajectories of the figures are of commit "
        f"{listed(dict.fromkeys(_commit(run.environment) for run in grid))}; times of a step of "
        f"{steps}; `auto` was timed as it ran, alone, with {_commits(autos)}. Compiling is not in these "
        "seconds."
    )
    return Sentence(text, bool(passes and grid and autos), "")


def _commit(environment: dict) -> str:
    changed = " with uncommitted changes" if environment.get("dirty") else ""
    return f"{str(environment.get('commit'))[:7]}{changed}"


def _commits(runs: Iterable) -> str:
    return f"commit {listed(dict.fromkeys(_commit(run.environment) for run in runs))}"


def _rounds(timing) -> str:
    counts = sorted({len(time.rounds) for each in timing.passes for time in each.times if time.rounds})
    return " or ".join(map(str, counts))


def _range(gain: Interval) -> str:
    return f"{gain.low:+.2f} to {gain.high:+.2f}"


def _none(number: int) -> str:
    return "none" if number == 0 else str(number)


FINDINGS: dict[str, Callable[[Results], Sentence]] = {
    "beta": beta,
    "inner-descent": inner_descent,
    "entropy-finding": entropy,
    "criteria-finding": criteria,
    "rates-finding": rates,
    "judges-finding": judges,
    "clock": clock,
}
