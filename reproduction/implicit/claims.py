"""The study's claims, judged in words from the cells: nothing here is typed in but the bars."""

from collections import defaultdict
from typing import Any

import numpy as np
from scipy import stats

Rows = list[dict[str, Any]]

# The bars that the plan of the study set.
SCORE_SHARE = 0.25
GRADIENT_SHARE = 0.25
TARGETS_WANTED = 4
ENERGIES_WANTED = 3
LEVEL = 0.90
PLAIN = "UIVI, 5 + 5 states"
STEIN_SCORE = "Stein order 1, all points"
DEFAULT = "the default"
# The likelihoods of an energy, and whom Stein weights are compared with there.
LIKELIHOODS = {"train": "rows of the fit", "log_likelihood": "rows held back"}
LIKELIHOOD_CONTENDERS = {"cd": "CD-k", "pcd": "persistent CD"}
# Scores of these targets are a series over the dimension of eps.
SERIES = "waveform-"
CONTENDERS = ("sivi", "uivi", "ksivi", "particles")


def order(values: Any) -> list[Any]:
    """Distinct values in order of appearance."""
    return list(dict.fromkeys(values))


def interval(values: list[float]) -> tuple[float, float]:
    """The mean and half the width of a 90 % interval by Student's t; NaN for a single value."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    wide = stats.t.ppf(0.5 + LEVEL / 2, len(values) - 1)
    return float(np.mean(values)), float(wide * np.std(values, ddof=1) / np.sqrt(len(values)))


def against(ours: list[float], other: list[float]) -> str:
    """ "above", "below" or "not told apart": Welch's 90 % interval of the difference of means."""
    if min(len(ours), len(other)) < 2:
        return "one seed"
    test = stats.ttest_ind(ours, other, equal_var=False)
    low, high = test.confidence_interval(LEVEL)
    return "above" if low > 0 else "below" if high < 0 else "not told apart"


def score_shares(rows: Rows) -> dict[str, list[float]]:
    """For each target, by moment: the median error of Stein weights over UIVI's, mean over seeds."""
    found: dict[str, list[float]] = {}
    for target in order(r["target"] for r in rows):
        own = [r for r in rows if r["target"] == target]
        shares = []
        for share in order(r["share"] for r in own):
            shares.append(score_ratio([r for r in own if r["share"] == share], STEIN_SCORE))
        found[target] = shares
    return found


def score_ratio(rows: Rows, name: str) -> float:
    """The median error of an estimate over UIVI's, both means over the seeds of these rows."""
    ours, plain = (
        float(np.mean([r["median"] for r in rows if r["estimator"] == title])) for title in (name, PLAIN)
    )
    return ours / plain


def dimensions(rows: Rows) -> dict[int, Rows]:
    """The rows of the waveforms at the end of training, by the dimension of eps."""
    found: dict[int, Rows] = defaultdict(list)
    for row in rows:
        if row["share"] == 1.0 and f"{row['target']}-".startswith(SERIES):
            # The waveforms themselves have an eps of ten dimensions.
            found[int((row["target"].split("-") + ["10"])[1])].append(row)
    return {k: found[k] for k in sorted(found)}


def gradient_ratio(rows: Rows, rule: str, base: str = "plain mean") -> float:
    """Mean squared error of a rule over that of another, over what rows there are of both."""
    ours, plain = (
        float(np.mean([r["mse"] for r in rows if r["rule"] == name])) for name in (rule, base)
    )
    return ours / plain


def worst_gradient(rows: Rows, problem: str) -> float:
    """The largest ratio along training and over the numbers of chains, each a mean over seeds."""
    own = [r for r in rows if r["problem"] == problem]
    places = order((r["share"], r["chains_over_dim"]) for r in own)
    return max(
        gradient_ratio([r for r in own if (r["share"], r["chains_over_dim"]) == place], DEFAULT)
        for place in places
    )


def likelihoods(rows: Rows, problem: str, method: str, key: str = "log_likelihood") -> list[float]:
    """One value for each seed."""
    return [r[key] for r in rows if (r["problem"], r["method"]) == (problem, method)]


def distance(
    rows: Rows, target: str, method: str, key: str = "sliced", share: float = 1.0
) -> tuple[float, float] | None:
    """A distance after this share of the seconds, and its standard error, of draws and of seeds."""
    some = [r for r in rows if (r["target"], r["method"], r["share"]) == (target, method, share)]
    if not some:
        return None
    error = float(np.sqrt(np.mean([r[f"{key}_error"] ** 2 for r in some]) / len(some)))
    values = [r[key] for r in some]
    if len(some) > 1:
        error = max(error, float(np.std(values, ddof=1) / np.sqrt(len(some))))
    return float(np.mean(values)), error


def no_worse(rows: Rows, target: str) -> tuple[str, str, list[str]] | None:
    """Whether UIVI + Stein is no worse than the best of those that there are: word, best, missing.

    "worse" if the one-sided 95 % bound of the difference is above zero.
    """
    ours = distance(rows, target, "uivi-stein")
    others = {m: distance(rows, target, m) for m in CONTENDERS}
    there = {m: d for m, d in others.items() if d is not None}
    if ours is None or not there:
        return None
    best = min(there, key=lambda m: there[m][0])
    gap = ours[0] - there[best][0]
    error = np.hypot(ours[1], there[best][1])
    word = "worse" if gap > stats.norm.ppf(0.5 + LEVEL / 2) * error else "no worse"
    return word, best, [m for m in CONTENDERS if m not in there]


def said(stored: dict[str, Rows]) -> list[str]:
    """The claims as a list, those for which there are rows."""
    made: list[str] = []
    if stored.get("scores"):
        made += _of_scores(stored["scores"])
    if stored.get("gradients"):
        made += _of_gradients(stored["gradients"])
    if stored.get("energies"):
        made += _of_energies(stored["energies"])
    if stored.get("longer"):
        made += _of_energies(stored["longer"])
    if stored.get("distances"):
        made += _of_distances(stored["distances"])
    return made


def _of_scores(rows: Rows) -> list[str]:
    found = []
    rows = [r for r in rows if not r["target"].startswith(SERIES)]
    for target, shares in score_shares(rows).items():
        seeds = len({r["seed"] for r in rows if r["target"] == target})
        worst = max(shares)
        word = "holds" if worst <= SCORE_SHARE else "does not hold"
        found.append(
            f"- **Score, {target}**: at most a quarter of UIVI's median squared error at equal "
            f"gradients, along training: **{word}** (at most {worst:.2g}, {_seeds(seeds)})."
        )
    return found


def _of_gradients(rows: Rows) -> list[str]:
    found = []
    for problem in order(r["problem"] for r in rows):
        worst = worst_gradient(rows, problem)
        word = "holds" if worst <= GRADIENT_SHARE else "does not hold"
        own = [r for r in rows if r["problem"] == problem]
        seeds = len({r["seed"] for r in own})
        counts = ", ".join(f"{count}d" for count in sorted(order(r["chains_over_dim"] for r in own)))
        found.append(
            f"- **Gradient, {problem}**: at most a quarter of the plain mean's squared error, along "
            f"training, with {counts} chains: **{word}** (at most {worst:.2g}, {_seeds(seeds)})."
        )
    return found


def after(rows: Rows) -> str:
    """The processor seconds of fits in words, as far as they are stored."""
    took = [r["seconds"] for r in rows if "seconds" in r]
    return f" after {np.median(took):.0f} s" if took else ""


def _of_energies(rows: Rows) -> list[str]:
    """Judged on the rows of the fit, whose likelihood is maximised; rows held back are told, too."""
    found = []
    above: dict[str, int] = dict.fromkeys(LIKELIHOODS, 0)
    judged = 0
    for problem in order(r["problem"] for r in rows):
        if not all(likelihoods(rows, problem, m) for m in ("stein", *LIKELIHOOD_CONTENDERS)):
            continue
        # The bar is about likelihoods that are known exactly.
        exact = not any(r.get("log_z_error") for r in rows if r["problem"] == problem)
        judged += exact
        told = []
        for key, title in LIKELIHOODS.items():
            ours = likelihoods(rows, problem, "stein", key)
            words, gaps = [], []
            for method, name in LIKELIHOOD_CONTENDERS.items():
                other = likelihoods(rows, problem, method, key)
                words.append(against(ours, other))
                word = f"{words[-1]} from" if words[-1] == "not told apart" else words[-1]
                gaps.append(f"{word} {name} ({np.mean(ours) - np.mean(other):+.4f})")
            above[key] += exact and all(word == "above" for word in words)
            told.append(f"{title}, {' and '.join(gaps)}")
        seeds = len(likelihoods(rows, problem, "stein"))
        apart = "" if exact else ", log Z by annealed importance sampling, not counted"
        found.append(
            f"- **Likelihood, {problem}{after(rows)}** ({_seeds(seeds)}{apart}), nats a row: "
            f"{'; '.join(told)}."
        )
    if judged:
        fitted, held_back = above["train"], above["log_likelihood"]
        word = "holds" if fitted >= ENERGIES_WANTED else "is not shown"
        found.append(
            f"- **Likelihood above both{after(rows)} on at least three of five: {word}** "
            f"(rows of the fit: {fitted} of {judged}; rows held back: {held_back} of {judged})."
        )
    return found


def _of_distances(rows: Rows) -> list[str]:
    found, well, judged = [], 0, 0
    for target in order(r["target"] for r in rows if r["method"] != "reference"):
        verdict = no_worse(rows, target)
        if verdict is None:
            continue
        word, best, missing = verdict
        judged += 1
        well += word == "no worse" and not missing
        ours, theirs = distance(rows, target, "uivi-stein"), distance(rows, target, best)
        assert ours is not None
        assert theirs is not None
        lack = f"; not run: {', '.join(missing)}" if missing else ""
        seeds = len({r["seed"] for r in rows if (r["target"], r["method"]) == (target, "uivi-stein")})
        found.append(
            f"- **Draws, {target}** ({_seeds(seeds)}): {word} than the best of the others, {best}: "
            f"{ours[0]:.3f} ± {ours[1]:.3f} against {theirs[0]:.3f} ± {theirs[1]:.3f}{lack}."
        )
    if judged:
        word = "holds" if well >= TARGETS_WANTED else "is not shown"
        found.append(
            f"- **No worse than the best of SIVI, UIVI, KSIVI and particles on at least four of six: "
            f"{word}** ({well} of {judged} targets, counting those with all four)."
        )
    return found


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"
