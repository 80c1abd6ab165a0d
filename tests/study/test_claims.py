"""Every claim reaches all three verdicts, each for the right reason."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import fabricated
import numpy as np
import pytest

from quietgrad.report.chapter import import_package
from quietgrad.study.claim import Verdict
from quietgrad.study.clock import with_timing
from quietgrad.study.interval import geometric, mean
from quietgrad.study.jobs import configuration
from quietgrad.study.summary import summarise

PAPER = Path(__file__).parents[2] / "reproduction" / "paper"
paper = import_package(PAPER)
CLAIMS, Evidence, evidence, judge = paper.CLAIMS, paper.Evidence, paper.evidence, paper.judge
NUMBERS = range(1, len(CLAIMS) + 1)


def claim(records, number):
    return CLAIMS[number - 1](Evidence(records))


def test_all_hold_in_a_world_made_as_the_paper_says():
    claims = judge(fabricated.study())
    assert [one.number for one in claims] == list(NUMBERS)
    assert {one.number: str(one.verdict) for one in claims} == dict.fromkeys(NUMBERS, "holds")
    for one in claims:
        assert "nan" not in one.value + one.uncertainty + one.why
        assert one.how
        assert "stand-in" not in one.why


def no_overhead(cell, its):
    """Control variates that cost nothing: NoCV is no longer first."""
    its.step_seconds = 3e-4 if cell.label == "nocv" else 1e-4


def no_faster(cell, its):
    """Fifty draws need more steps than ten."""
    its.pace *= 3 if cell.draws == 50 else 1


def no_lift(cell, its):
    its.final = -800.0


def large_zvcv_gain(cell, its):
    its.final += 20 if cell.label == "zvcv-gd" else 0


def quick_start(cell, its):
    its.pace *= 0.5 if cell.label == "quadcv" else 1


def loud_quadcv(cell, its):
    its.ratio_late = 1.5 if cell.label == "quadcv" else its.ratio_late


def quiet_on_networks(cell, its):
    its.ratio = its.ratio_late = 0.3 if cell.label == "zvcv-gd" else its.ratio_late


def batch_noise(cell, its):
    its.variance += 2000


def another_rank_five(cell, its):
    if cell.family == "low-rank" and cell.label != "nocv":
        its.final -= 20
        its.step_seconds *= 0.1


def one_bad_start(cell, its):
    """One repetition of NoCV never leaves its start: the mean goes, the median stays."""
    if cell.label == "nocv":
        its.final += 30 - (4000 if cell.rep == 0 else 0)


def no_better_predictions(cell, its):
    its.lppd = -141.0 if cell.label == "nocv" else -143.0


def quiet_second_order(cell, its):
    its.ratio = its.ratio_late = min(its.ratio, 0.9)


def wider_gap(cell, its):
    """QuadCV gains more with fifty draws than with ten."""
    its.final += 5 if cell.label == "quadcv" and cell.draws == 50 else 0


def loud_twenty(cell, its):
    if cell.label.endswith("20 steps"):
        its.ratio = its.ratio_late = 1.4


REFUTED = {
    1: no_overhead,
    2: no_faster,
    3: no_lift,
    4: large_zvcv_gain,
    5: quick_start,
    6: loud_quadcv,
    7: quiet_on_networks,
    8: batch_noise,
    9: another_rank_five,
    10: one_bad_start,
    11: no_better_predictions,
    12: quiet_second_order,
    13: loud_twenty,
    14: wider_gap,
}


@pytest.mark.parametrize("number", REFUTED)
def test_refuted(number):
    judged = claim(fabricated.study(bend=REFUTED[number]), number)
    assert judged.verdict in (Verdict.DOES_NOT, Verdict.IN_PART)
    assert Verdict.DOES_NOT in {part.verdict for part in judged.parts}


def test_a_sentence_about_a_graphics_card_is_not_refuted_by_a_processor():
    def expensive_draws(cell, its):
        its.step_seconds *= 4 if cell.draws == 50 else 1

    records = fabricated.study(bend=expensive_draws)
    assert claim(records, 2).parts[0].verdict is Verdict.ELSEWHERE
    card = {**fabricated.ENVIRONMENT, "backend": "gpu"}
    there = [dataclasses.replace(one, environment=card) for one in records]
    assert claim(there, 2).parts[0].verdict is Verdict.DOES_NOT


def test_what_can_happen_is_shown_by_a_case_and_not_refuted_by_its_absence():
    def nowhere(cell, its):
        if cell.label == "zvcv-gd":
            its.final = fabricated.traits(dataclasses.replace(cell, label="nocv")).final + 0.05

    assert claim(fabricated.study(), 4).parts[1].verdict is Verdict.SHOWN
    assert claim(fabricated.study(bend=nowhere), 4).parts[1].verdict is Verdict.CANNOT_TELL
    assert claim(fabricated.study(), 13).parts[1].verdict is Verdict.SHOWN

    def best(cell, its):
        if cell.label.endswith("convergence"):
            its.ratio = its.ratio_late = 0.5

    assert claim(fabricated.study(bend=best), 13).parts[1].verdict is Verdict.CANNOT_TELL


def test_bursts_of_noise_count_though_the_median_does_not_see_them():
    """A ratio of 0.98 in most readings and of 1.8 in one of ten."""
    records = []
    for run in fabricated.study():
        if run.cell.label == fabricated.VARIANTS[0]:
            ratio = np.where(np.arange(len(run.column("step"))) % 10 == 0, 1.8, 0.98)
            run = dataclasses.replace(run, columns={**run.columns, "variance_ratio": ratio})
        records.append(run)
    _, noise, _ = claim(records, 12).parts
    assert noise.verdict is Verdict.HOLDS
    assert "above 1 in 11% of readings" in noise.value


def test_every_part_quotes_the_paper():
    for one in judge(fabricated.study()):
        assert all(part.quote for part in one.parts), one.number


def without(label, **where):
    """A study that lacks one estimator."""
    labels = [one for one in fabricated.LABELS if one != label]
    return fabricated.study(labels=labels, **where)


LACKING = {
    1: (lambda: without("quadcv"), "needs NoCV, ZVCV-GD and QuadCV"),
    2: (lambda: fabricated.study(draws=[10]), "L = 50"),
    3: (lambda: without("quadcv"), "needs NoCV and QuadCV on frisk"),
    4: (lambda: without("zvcv-gd"), "ZVCV-GD"),
    5: (lambda: without("quadcv"), "needs NoCV and QuadCV on a1a"),
    6: (lambda: without("quadcv"), "variance ratios of ZVCV-GD and QuadCV"),
    7: (lambda: without("zvcv-gd"), "ZVCV-GD at L = 10 and L = 50"),
    8: (lambda: without("nocv"), "variances of NoCV"),
    9: (lambda: fabricated.study(families=["mean-field"]), "low-rank"),
    10: (lambda: fabricated.study(reps=2), "three or more repetitions"),
    11: (lambda: fabricated.study(tasks=["a1a"]), "redwine"),
    12: (lambda: fabricated.study(ablations=False), "order 2"),
    13: (lambda: fabricated.study(ablations=False), "20 steps"),
    14: (lambda: without("nocv"), "needs NoCV and QuadCV at L = 10 and L = 50"),
}


@pytest.mark.parametrize("number", LACKING)
def test_cannot_tell_without_the_data(number):
    make, reason = LACKING[number]
    judged = claim(make(), number)
    assert judged.verdict is Verdict.CANNOT_TELL
    assert reason in judged.why


@pytest.mark.parametrize("records", [[], fabricated.study(reps=1)], ids=["nothing", "one rep"])
def test_no_verdict_from_nothing_or_a_single_repetition(records):
    assert {one.verdict for one in judge(records)} == {Verdict.CANNOT_TELL}


def test_no_verdict_on_the_final_elbo_from_runs_that_have_not_arrived():
    records = fabricated.study(steps=500)
    for number in (1, 2, 3, 4, 11):
        assert claim(records, number).verdict is Verdict.CANNOT_TELL
    assert "no repetition had reached a plateau" in claim(records, 3).why


def test_a_start_that_is_still_on_its_way_does_not_move_claims_about_the_end():
    # As on frisk: one of three starts needs five times as long, and ends hundreds of nats below.
    def slow(cell, its):
        its.pace *= 5 if cell.rep == 0 and cell.task == "frisk" else 1

    judged = claim(fabricated.study(reps=3, bend=slow), 3)
    assert judged.verdict is Verdict.HOLDS
    assert re.search(r"frisk: \+0\.(69|70|71) nats", judged.value)
    assert "in the 2 of 3 repetitions that reached a plateau" in judged.why
    # Claims about speed take the slow one, too, wherever anybody arrives: at L = 50.
    assert "of 69 races" in claim(fabricated.study(reps=3, bend=slow), 1).why


def test_a_comparison_counts_when_all_of_its_runs_have_arrived():
    flat, rising = fabricated.study()[:2]
    matches = [(flat, rising), (flat, flat), (rising, rising)]
    ended, remark = evidence.plateaus(matches, lambda run: run is flat)
    assert ended == [(flat, flat)]
    assert remark == " (in the 1 of 3 repetitions that reached a plateau)"


def test_what_these_records_cannot_judge_is_marked():
    within = {one.number: one.within_reach for one in judge(fabricated.study())}
    assert all(within.values())
    small = judge(fabricated.study(tasks=["frisk"], families=["mean-field"]))
    assert not next(one for one in small if one.number == 11).within_reach
    # A single repetition has numbers but no interval: more of the same would do.
    single = judge(fabricated.study(reps=1))
    assert next(one for one in single if one.number == 2).within_reach


def test_stand_ins_are_used_and_named():
    records = fabricated.study(tasks=fabricated.STAND_INS)
    judged = claim(records, 3)
    assert judged.verdict is Verdict.HOLDS
    assert "counts for frisk" in judged.why
    assert "diabetes for redwine" in judged.why


def test_the_papers_data_goes_before_the_stand_ins():
    records = fabricated.study(tasks=["frisk", "counts"], bend=_bad_counts)
    assert claim(records, 12).verdict is Verdict.HOLDS


def _bad_counts(cell, its):
    if cell.task == "counts":
        its.ratio = its.ratio_late = 0.5


def test_failed_cells_do_not_count():
    records = fabricated.study(tasks=["frisk"], reps=2)
    failed = fabricated.unfinished("failed", "out of memory", task="frisk")
    assert judge([*records, failed]) == judge(records)


def test_times_of_cells_that_ran_side_by_side_do_not_count():
    records = fabricated.study(tasks=["frisk", "redwine"], families=["mean-field"])
    beside = [dataclasses.replace(one, outcome={**one.outcome, "timed": False}) for one in records]
    for number in (1, 2, 3):
        assert claim(records, number).verdict is Verdict.HOLDS
        assert claim(beside, number).verdict is Verdict.CANNOT_TELL
    assert all(row.compile_seconds == 1.5 for row in summarise(records))
    assert all(np.isnan(row.compile_seconds) for row in summarise(beside))


def test_the_fifth_is_judged_by_cells_with_more_gradients_where_there_are_any():
    records = fabricated.study(
        tasks=["frisk"], families=["mean-field"], labels=["nocv"], ablations=False
    )
    noisy = [
        dataclasses.replace(run, columns={**run.columns, "variance": run.column("variance") * factor})
        for run in records
        for factor in ([0.2, 1.0, 4.0, 0.6][run.cell.rep] if run.cell.draws == 50 else 1.0,)
    ]
    assert claim(noisy, 8).verdict is Verdict.CANNOT_TELL
    more = [
        dataclasses.replace(run, cell=dataclasses.replace(run.cell, group="noise", steps=1))
        for run in records
    ]
    assert claim(noisy + more, 8).verdict is Verdict.HOLDS
    # They are no runs that could arrive.
    assert {row.group for row in summarise(noisy + more)} == {"main"}


def test_a_timing_pass_gives_untimed_cells_their_clock():
    records = fabricated.study(tasks=["frisk", "redwine"], families=["mean-field"])
    beside = [dataclasses.replace(one, outcome={**one.outcome, "timed": False}) for one in records]
    times = {}
    for one in records:
        # Three rounds, the machine a third slower in the last one.
        step = fabricated.traits(one.cell).step_seconds
        times[configuration(one.cell)] = tuple(step * slow for slow in (1.0, 1.01, 1.3))
    timed = with_timing(beside, times)
    for number in (1, 2, 3):
        judged = claim(timed, number)
        assert judged.verdict is Verdict.HOLDS
        assert "seconds of a step, measured apart in 3 interleaved rounds" in judged.why
    cost = next(part for part in claim(timed, 3).parts if "times the time" in part.value)
    assert (cost.reps, cost.over) == (3, "rounds of the timing pass")
    # Both were slower in the same round, which their ratio does not see.
    assert cost.uncertainty == "1.70 to 1.70"
    assert "over 4 repetitions and 3 rounds" in claim(timed, 3).uncertainty


def test_interval_is_students():
    # Mean 2, standard error 1/sqrt(3); the 95th percentile of t with two degrees of freedom: 2.92.
    interval = mean([1.0, 2.0, 3.0])
    assert interval.low == pytest.approx(2 - 2.919986 / 3**0.5, rel=1e-5)
    assert interval.within(0.0, 4.0) is Verdict.HOLDS
    assert interval.within(2.0, 4.0) is Verdict.CANNOT_TELL
    assert interval.within(5.0, 6.0) is Verdict.DOES_NOT
    assert geometric([1.0, 4.0]).middle == pytest.approx(2.0)
    assert mean([1.0]).within(0.0, 2.0) is Verdict.CANNOT_TELL


def test_judging_does_not_import_jax():
    code = (
        "import sys; from pathlib import Path; from quietgrad.report.chapter import import_package;"
        "import_package(Path(sys.argv[1])).judge([]); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(PAPER)], check=False).returncode == 0
