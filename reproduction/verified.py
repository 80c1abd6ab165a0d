"""Sentences of the published study that stand in the page as they are, each with what it rests on."""

from collections.abc import Callable

import numpy as np
from results import (
    ESTIMATORS,
    PLACES,
    TASKS,
    Results,
    clearly,
    falling,
    late_lppd,
    paper,
    plain,
    step_ratio,
)

from quietgrad.evaluation.arrival import held_index
from quietgrad.study.claim import Verdict
from quietgrad.study.plateau import late_elbo, on_plateau

GAUSSIANS = tuple(place for place in PLACES if place[1] != "real-nvp")


def shape_of_the_grid(results: Results) -> bool:
    """Five repetitions of every row of the grid with Gaussian families, three with flows."""
    return all(
        len(results.runs(task, family, paper(label, draws))) == (3 if family == "real-nvp" else 5)
        for task, family in PLACES
        for label in ESTIMATORS
        for draws in (10, 50)
    )


def flow_readings(results: Results) -> bool:
    """On frisk the other reading of the flow ends more than 1,000 nats higher."""
    own = results.level("frisk", "real-nvp", plain("real-nvp"))
    other = results.level("frisk", "real-nvp-scaled", ("flows", "nocv", 10))
    return own is not None and other is not None and other.middle > own.middle + 1000


def little_left(results: Results) -> bool:
    """With Gaussian families QuadCV lifts all at a constant step, and little at a falling one.

    Little: QuadCV with ten draws and `quiet` by less than 2.5 nats everywhere.
    """
    gains = [
        results.gain(*place, falling(label, 10), falling("nocv", 10))
        for place in GAUSSIANS
        for label in ("quadcv", "quiet")
    ]
    known = [gain.middle for gain in gains if gain is not None and gain.reps > 1]
    lifts = [results.gain(*place, paper("quadcv", 10), paper("nocv", 10)) for place in GAUSSIANS]
    return max(known) < 2.5 and all(clearly(lift) > 0 for lift in lifts)


def flows_and_draws(results: Results) -> bool:
    """With flows, 50 plain draws end clearly above QuadCV with 10 on one model, below on none."""
    flows = [(task, "real-nvp") for task in TASKS]
    signs = [clearly(results.gain(*p, paper("nocv", 50), paper("quadcv", 10))) for p in flows]
    prices = [step_ratio(results, place, paper("quadcv", 10), paper("nocv", 50)) for place in flows]
    dearer = all(price is not None and price.middle > 1 for price in prices)
    return dearer and signs.count(1) == 1 and signs.count(-1) == 0


def quiet_flows(results: Results) -> bool:
    """`quiet` with flows: less variance, half more time, and no clear gain or loss at either step."""
    signs, ratios, prices = [], [], []
    for place in ((task, "real-nvp") for task in TASKS):
        ours = ("main", "quiet", 10)
        signs.append(clearly(results.gain(*place, ours, plain("real-nvp"))))
        signs.append(clearly(results.gain(*place, falling("quiet", 10), falling("nocv", 10))))
        ratios.append(results.ratio(*place, ours))
        prices.append(step_ratio(results, place, ours, paper("nocv", 10)))
    less = all(ratio is not None and ratio.high < 1 for ratio in ratios)
    half = all(price is not None and 1.4 < price.middle < 1.6 for price in prices)
    return less and half and not any(signs)


def signs_of_claim_seven(results: Results) -> bool:
    """The effect of larger L on ZVCV-GD's variance ratio is 0.04%."""
    return "1.0004" in results.claims[6].parts[0].value


def at_rest(results: Results) -> bool:
    """Most rows of the grid that do not arrive are on a plateau."""
    resting = []
    for place in PLACES:
        for label in ESTIMATORS:
            for draws in (10, 50):
                row = results.row(*place, paper(label, draws))
                if row is not None and not row.arrived:
                    runs = results.runs(*place, paper(label, draws)).values()
                    resting += [on_plateau(run) for run in runs]
    return float(np.mean(resting)) > 0.75


def still_rising(results: Results) -> bool:
    """At rank 5 on a1a, the slope over the second half of a run is above two standard errors.

    In nine tenths of the runs of the grid.
    """
    clear = []
    for label in ESTIMATORS:
        for draws in (10, 50):
            for run in results.runs("a1a", "low-rank", paper(label, draws)).values():
                late = run.elbo[len(run.elbo) // 2 :]
                (slope, _), spread = np.polyfit(np.arange(len(late)), late, 1, cov=True)
                clear.append(slope > 2 * spread[0, 0] ** 0.5)
    return float(np.mean(clear)) > 0.9


def same_order(results: Results) -> bool:
    """At rank 5 QuadCV ends highest of the three with as many draws, by more than with mean-field."""
    found = []
    for task in TASKS:
        gains = [
            results.gain(task, family, paper("quadcv", 10), paper("nocv", 10))
            for family in ("mean-field", "low-rank")
        ]
        found += [a.middle < b.middle for a, b in [gains] if a is not None and b is not None]
    return len(found) == len(TASKS) and all(found)


def zvcv_stays(results: Results) -> bool:
    """ZVCV-GD's late ratio is within 2% of 1 everywhere; `quiet` and QuadCV end low alike.

    Alike: with a mean-field Gaussian and all rows, both below 0.1.
    """
    zvcv = [results.ratio(*place, paper("zvcv-gd", draws)) for place in PLACES for draws in (10, 50)]
    low = [
        results.ratio(task, "mean-field", key)
        for task in ("a1a", "frisk", "redwine")
        for key in (paper("quadcv", 10), ("main", "quiet", 10))
    ]
    stays = all(ratio is not None and 0.98 <= round(ratio.middle, 2) <= 1.02 for ratio in zvcv)
    return stays and all(ratio is not None and ratio.middle < 0.1 for ratio in low)


def closed_entropy(results: Results) -> bool:
    """At rank 5 on all rows, QuadCV with the entropy in closed form ends clearly lower nowhere.

    On the mini-batch network it does.
    """
    signs = {
        task: clearly(
            results.gain(task, "low-rank", ("entropy", "quadcv closed", 10), ("entropy", "quadcv", 10))
        )
        for task in TASKS
    }
    return signs.pop("redwine-mini") == -1 and 1 in signs.values() and -1 not in signs.values()


def rank_five(results: Results) -> bool:
    """Rank 5, falling step: QuadCV is clearly above `quiet` on a1a, and `quiet` above it on redwine."""
    gains = [
        results.gain(task, "low-rank", falling("quadcv", 10), falling("quiet", 10))
        for task in ("a1a", "redwine")
    ]
    return [clearly(gain) for gain in gains] == [1, -1]


def slow_starts(results: Results) -> bool:
    """On frisk the slowest start needs twice the steps of the median one, for all three estimators."""
    for label in ESTIMATORS:
        runs = results.runs("frisk", "mean-field", paper(label, 10)).values()
        best = max(late_elbo(run) for run in runs)
        places = [(run, held_index(run.elbo, best - 10)) for run in runs]
        steps = [np.inf if at is None else run.column("step")[at] for run, at in places]
        if not max(steps) > 2 * np.median(steps):
            return False
    return True


def inner_steps(results: Results) -> bool:
    """Claim 13: variance falls by less than 10% from 4 to 20 steps and from there to the limit."""
    fall, limit, *elbo = results.claims[12].parts
    ratios = [float(part.value.split()[-1]) for part in (fall, limit)]
    return all(0.9 < ratio < 1 for ratio in ratios) and all(p.verdict is Verdict.HOLDS for p in elbo)


def other_optima(results: Results) -> bool:
    """On a1a with Real NVP, rows from one start end more than ten nats apart."""
    apart = []
    for rep in range(3):
        runs = [results.runs("a1a", "real-nvp", paper(label, 10)) for label in ESTIMATORS]
        apart.append(np.ptp([late_elbo(each[rep]) for each in runs if rep in each]))
    return max(apart) > 10


def shelves(results: Results) -> bool:
    """At rank 5 on the full-batch network `quiet` is on top, QuadCV second, the others as one.

    On the mini-batch network all five are within 15 nats, less than half of what 50 draws gain.
    """
    keys = [("main", "quiet", 10), *(paper(label, 10) for label in ("quadcv", "zvcv-gd", "nocv"))]
    keys.append(("main", "rqmc", 10))
    # Above plain gradients of the same judge.
    levels = {
        task: [gain.middle for key in keys if (gain := results.above_plain(task, "low-rank", key))]
        for task in ("redwine", "redwine-mini")
    }
    quiet, quad, *others = levels["redwine"]
    alike = np.ptp(others) < 1 and len(others) == 3
    mini = float(np.ptp(levels["redwine-mini"]))
    fifty = results.gain("redwine-mini", "low-rank", paper("nocv", 50), paper("nocv", 10))
    return alike and quiet > quad + 2 > max(others) + 2 and fifty is not None and 2 * mini < fifty.low


def two_shelves(results: Results) -> bool:
    """On the full-batch network with a mean-field Gaussian NoCV and ZVCV-GD end as one, QuadCV above.

    In every repetition and for both numbers of draws.
    """
    found = []
    for draws in (10, 50):
        runs = [results.runs("redwine", "mean-field", paper(label, draws)) for label in ESTIMATORS]
        for rep in runs[0]:
            plain_end, zvcv, quad = (late_elbo(each[rep]) for each in runs)
            found.append(abs(plain_end - zvcv) < 0.1 and quad > plain_end + 3)
    return all(found)


def predictions_either_way(results: Results) -> bool:
    """Test lppd moves by less than 3 nats, up in some settings and down in others."""
    gains = [
        results.gain(*place, make("quadcv", draws), make("nocv", draws), measure=late_lppd)
        for place in PLACES
        for make in (paper, falling)
        for draws in (10, 50)
    ]
    signs = [clearly(gain) for gain in gains if gain is not None]
    small = all(abs(gain.middle) < 3 for gain in gains if gain is not None)
    return small and 1 in signs and -1 in signs


def noise_of_rows(results: Results) -> bool:
    """On the mini-batch network with a mean-field Gaussian no row has a late ratio below 0.9."""
    keys = [paper(label, draws) for label in ESTIMATORS[1:] for draws in (10, 50)]
    keys += [("main", label, 10) for label in ("quiet", "rqmc")]
    ratios = [results.ratio("redwine-mini", "mean-field", key) for key in keys]
    return all(ratio is not None and ratio.middle > 0.9 for ratio in ratios)


VERIFIED: dict[str, Callable[[Results], bool]] = {
    "with 10 and 50 draws, five repetitions (three with flows)": shape_of_the_grid,
    "On frisk, taking the tanh alone costs more than 1,000 nats.": flow_readings,
    "with a Gaussian family, a step that falls to zero leaves little for a control variate to gain": (
        little_left
    ),
    "less variance than plain gradients for [1.5 times the time](#what-a-step-costs); where runs end, "
    "three repetitions cannot tell": quiet_flows,
    "QuadCV's step takes longer than one with 50 plain draws, and these end clearly higher than QuadCV "
    "with 10 on one of the four models and clearly lower on none": flows_and_draws,
    "by the sign of the interval alone, larger L would be worse by 0.04%": signs_of_claim_seven,
    "Most rows that do not arrive have come to rest": at_rest,
    "With rank 5 on a1a they were still rising slowly when they ended.": still_rising,
    "the same order, with larger gaps": same_order,
    'at rank 5 and with all rows `entropy="closed"`, which [ends higher or as high]': closed_entropy,
    "where runs end, QuadCV is above `quiet` on a1a (120 parameters), and `quiet` above QuadCV on the "
    "full-batch network (653)": rank_five,
    "some repetitions need twice the steps of others, whatever the estimator": slow_starts,
    "more steps are better up to convergence, by a few percent, and the ELBO does not move": inner_steps,
    "Runs from one start fall into optima tens of nats apart": other_optima,
    "On the mini-batch network nothing helps: that noise comes from the rows": noise_of_rows,
    "on the full-batch network, `quiet` is on top, QuadCV below it, and the other three are as one; on "
    "the mini-batch network ten draws are too noisy to tell them apart": shelves,
    "the paper's three end on the same two shelves": two_shelves,
    "predictions move by a nat or two, up or down": predictions_either_way,
    "ZVCV-GD stays at 1 everywhere. `quiet` ends about as low as QuadCV": zvcv_stays,
}
