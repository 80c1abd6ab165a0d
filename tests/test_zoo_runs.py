"""The zoo's bookkeeping: rows that are stored once, processes that die, tables that count."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of the source distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

zoo, store, running, table, pages = map(
    import_module, ("zoo", "zoo.store", "zoo.running", "zoo.table", "pages")
)
judging, reference = map(import_module, ("zoo.judging", "zoo.reference"))
HERE = {"commit": "0" * 40, "dirty": False, "cpu": "a cpu", "cores": 2}
HERE |= {"python": "3", "jax": "0", "precision": "float64"}
TRUTH = {"dim": 1, "mean": [0.0], "std": [1.0], "must_warn": None}


def row_of(model="logistic", tool="auto", seed=0, error=0.0, ratio=1.0, verdict="trust", **more):
    row = {"model": model, "tool": tool, "seed": seed, "mean_error": error, "verdict": verdict}
    row |= {"least_std_ratio": ratio, "most_std_ratio": ratio, "corrected_error": None}
    return row | more


def test_a_fit_is_stored_once_and_in_the_order_of_the_zoo(tmp_path):
    rows = store.Store("fits", tmp_path)
    for row in (row_of("banana"), row_of(seed=1), row_of(error=3.0)):
        rows.put(row, HERE)
    rows.put(row_of(error=0.1), HERE | {"commit": "1" * 40})
    assert [(row["model"], row["seed"]) for row in rows.rows("auto")] == [
        ("logistic", 0), ("logistic", 1), ("banana", 0),
    ]  # fmt: skip
    assert rows.rows("auto")[0]["mean_error"] == 0.1
    assert rows.has("logistic", "auto", 1)
    assert not rows.has("logistic", "full-rank", 1)
    # An environment stays as long as a row was made in it.
    assert len(rows.environments("auto")) == 2
    rows.put(row_of(seed=1), HERE | {"commit": "1" * 40})
    rows.put(row_of("banana"), HERE | {"commit": "1" * 40})
    assert [place["commit"] for place in rows.environments("auto").values()] == ["1" * 40]


def test_a_process_that_dies_is_a_row_and_another_goes_on():
    started = []

    def lines(model, jobs, *, cold):
        started.append(list(jobs))
        yield HERE
        for tool, seed in jobs:
            if (tool, seed) == ("auto", 1) and len(started) == 1:
                yield "out of memory"
                return
            yield row_of(model, tool, seed)

    jobs = [("auto", 0), ("auto", 1), ("bam", 0)]
    fits = running.fits("logistic", jobs, cold=False, run=lines)
    rows = [row for row, place in fits if place == HERE]
    assert [(row["tool"], row["seed"]) for row in rows] == jobs
    assert [row.get("status") for row in rows] == [None, "fault", None]
    assert rows[1]["hint"] == "out of memory"
    assert started == [jobs, jobs[2:]]


@pytest.mark.slow
def test_a_process_that_fails_says_why():
    ((row, _),) = running.fits("logistic", [("no-such-tool", 0)], cold=False)
    assert row["status"] == "fault"
    assert "no-such-tool" in row["hint"]


def test_summary_counts():
    rows = [
        row_of(),
        row_of(seed=1, error=0.5),
        row_of(seed=2, error=0.5, verdict="do not trust"),
        row_of("student", verdict="do not trust"),
        row_of("diabetes", ratio=0.5),
        row_of("cauchy", error=None, ratio=None, verdict="do not trust"),
    ]
    nowhere = {"dim": 2, "must_warn": "no mean"}
    truths = {name: TRUTH for name in ("logistic", "student", "diabetes")} | {"cauchy": nowhere}
    *_, line = table.summary(rows, truths)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    words, models, fits, right, says_so, silent, known, scales, wrong, needless = cells
    assert (words, models, fits) == (table.TOOLS["auto"], "4", "6")
    assert (right, says_so, silent) == ("3", "2", "1")
    assert known == "3 of 5 (60 %)"
    assert (scales, wrong, needless) == ("2", "2 of 3", "1 of 2")


def test_page_has_models_held_back_apart(tmp_path):
    rows, cold = store.Store("fits", tmp_path), store.Store("cold", tmp_path)
    for name in ("logistic", "ar2"):
        rows.put(row_of(name), HERE)
    cold.put(row_of(seconds=9.0, cold=True), HERE)
    cold.put(row_of(seed=1, seconds=1.0, cold=False, verdict_seconds=2.0), HERE)
    text = "\n".join(table.page(rows, cold, ["logistic", "ar2"], {"logistic": TRUTH, "ar2": TRUTH}))
    held = text.split("Models held back:")[1]
    assert held.strip().splitlines()[2].startswith(f"| {table.TOOLS['auto']} | 1 | 1 |")
    assert "| ar2 (held back) | 1 | 0.00 right |" in text
    assert f"| {table.TOOLS['auto']} | 1 | 9.0 | 1.0 | 2.0 |" in text
    assert "auto (2):" in text
    assert "commit 0000000" in text


OURS = [row for tool in ("auto", "full-rank", "mean-field") for row in store.Store().rows(tool)]
# What a verdict on these must say, and advise.
ODD = {
    "funnel": ("sd is", "non-centred"),
    "banana": ("sd is", "banana"),
    "bimodal": ("never looks", "several modes"),
    "cauchy": ("not exist", "quantiles"),
}


@pytest.mark.skipif(not OURS, reason="no fits are stored; make some with benchmarks/accuracy.py run")
def test_stored_fits_have_no_silent_error_and_few_needless_warnings():
    truths = reference.read()
    assert [row for row in OURS if judging.classify(row, truths[row["model"]]) == "silent"] == []
    good = list(filter(judging.fine, OURS))
    assert sum(map(judging.needless_warning, good)) <= 0.1 * len(good)


@pytest.mark.parametrize("name", ODD)
def test_stored_fits_of_odd_posteriors_say_what_is_wrong(name):
    rows = [row for row in OURS if row["model"] == name and row["tool"] != "auto"]
    if not rows:
        pytest.skip("no fits of it are stored")
    for row in rows:
        assert row["verdict"] == judging.DO_NOT_TRUST, row
        reason, advice = ODD[name]
        assert any(reason in line for line in row["reasons"]), row["reasons"]
        assert any(advice in line for line in row["advice"]), row["advice"]


def test_the_tables_in_the_docs_are_those_of_the_stored_rows():
    rows, cold = store.Store("fits"), store.Store("cold")
    now = table.page(rows, cold, list(zoo.REGISTRY), reference.read())
    there = pages.published("zoo", pages.TRUST)
    assert there == now, "run python benchmarks/accuracy.py table --write"


def test_tables_go_between_their_marks_and_nowhere_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- mine: begin -->\nold\n<!-- mine: end -->\nafter\n")
    for lines in (["| a |", "", "| b |"], ["c"]):
        pages.publish("mine", lines, page)
        assert pages.published("mine", page) == lines
        assert page.read_text().startswith("before\n")
        assert page.read_text().endswith("\nafter\n")
    page.write_text("no marks\n")
    with pytest.raises(ValueError, match="needs the marks"):
        pages.publish("mine", ["c"], page)


def test_what_was_not_run_is_named(tmp_path):
    rows = store.Store("fits", tmp_path)
    for seed in range(3):
        rows.put(row_of(seed=seed), HERE)
    truths = {"logistic": TRUTH | {"good": True}, "ar2": TRUTH | {"good": True}}
    lines = table.coverage(rows, ["logistic", "ar2", "arma"], truths)
    words = table.TOOLS["auto"]
    assert lines[0] == f"- {words}: 3 fits of 1 of 2 models, 1 of them with 3 seeds; no fit of ar2."
    assert lines[1].endswith(": not run.")
    assert lines[-1] == "- No reference yet: arma."
