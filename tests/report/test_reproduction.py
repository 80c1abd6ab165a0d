"""The published study: its cells, page and figures from them, and the tables written from them."""

import dataclasses
import importlib
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from quietgrad import report
from quietgrad.report.stored_study import load
from quietgrad.report.words import headlines
from quietgrad.study.jobs import configuration
from quietgrad.study.store import Store, studies
from quietgrad.study.timing import StepTime, Timing, TimingPass, configurations, write_timing

FOLDER = Path(__file__).parents[2] / "reproduction"
MOST_BYTES = 10_000


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The cells of the smallest model with a mean-field Gaussian, without what a report adds."""
    folder = tmp_path_factory.mktemp("reproduction")
    (folder / "cells").mkdir()
    for path in (FOLDER / "cells").glob("*-frisk-mean-field-*.parquet"):
        shutil.copy(path, folder / "cells")
    for name in ("manifest.json", "bias.json"):
        shutil.copy(FOLDER / name, folder)
    return folder


@pytest.fixture(scope="module")
def tables():
    """The script that writes the tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("tables")
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").parent == FOLDER:
            sys.modules.pop(name, None)


def test_cells_are_small_and_say_where_they_come_from():
    sizes = [path.stat().st_size for path in (FOLDER / "cells").glob("*.parquet")]
    assert len(sizes) >= 300
    assert sum(sizes) / len(sizes) < MOST_BYTES
    commits = {record.environment["commit"] for record in Store(FOLDER).read_all()}
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in commits)
    text = (FOLDER / "manifest.json").read_text(encoding="utf-8")
    assert all("reproduction/" in each["command"] for each in studies(Store(FOLDER).manifest()))
    assert not re.search(r'"/|: /|~/', text)


def test_every_row_that_takes_steps_was_timed():
    study = load(FOLDER)
    assert study.timing is not None
    known = study.timing.by_configuration()
    timed = ("trajectories", "ours", "methods")
    cells = [each.cell for each in Store(FOLDER).planned() if each.study in timed]
    assert {configuration(cell) for cell in configurations(cells)} <= known.keys()
    assert max(each.others for each in study.timing.passes) < 0.05


@pytest.mark.slow
def test_page_and_figures_with_a_timing_pass(copy, tmp_path):
    before = load(copy)
    untimed = [record for record in before.main if not record.cell.ends_itself]
    assert not load(copy).timed or len(untimed) < len(before.main)
    # As if a step of every configuration took 20 to 22 microseconds.
    cells = configurations(planned.cell for planned in Store(copy).planned())
    times = tuple(StepTime(cell, (20e-6, 21e-6, 22e-6), 100) for cell in cells)
    found = TimingPass("2026-01-02T03:04:05+00:00", {"commit": "0" * 40}, 0.01, times)
    write_timing(copy, Timing((found,)))
    page = report.build(copy, out=tmp_path).read_text(encoding="utf-8")
    assert "measured apart in 3 interleaved rounds" in page
    assert "while other work took 1.0% of the processors at most" in page
    assert "zvcv-gd order 2" in page
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    for kind in ("elbo-time-mean-field-median", "variance-ratio-mean-field-mean", "ablation-order"):
        assert {f"{kind}.png", f"{kind}.svg"} <= figures
    assert all(path.stat().st_size < 1_000_000 for path in (tmp_path / "figures").iterdir())
    # Steps times the seconds of a step.
    steps = next(record.cell.steps for record in load(copy).main if record.cell.steps)
    assert f"{steps * 21e-6:.2f}" in page


def test_tables_are_up_to_date(tables, capsys):
    assert tables.main(["--check"]) == 0, capsys.readouterr().out
    marked = [name for page in tables.PAGES for _, name, _ in tables.MARK.findall(page.read_text())]
    assert set(marked) == tables.TABLES.keys()


def test_a_table_that_was_changed_by_hand_is_found(tables, copy, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: bias -->\n| typed by hand |\n<!-- end -->\nafter\n")
    assert tables.main(["--check"], pages=(page,), here=copy) == 1
    assert "typed by hand" in page.read_text()
    assert tables.main([], pages=(page,), here=copy) == 0
    text = page.read_text()
    assert "typed by hand" not in text
    assert text.startswith("before\n<!-- table: bias -->\n| where |")
    assert text.endswith("\n<!-- end -->\nafter\n")


@pytest.fixture(scope="module")
def statements(tables):
    """The script that checks the conclusion."""
    return importlib.import_module("statements")


@pytest.fixture(scope="module")
def everything(statements):
    """All cells, read once."""
    return statements.read()


def test_every_statement_holds(statements, capsys):
    assert statements.main([]) == 0, capsys.readouterr().out


def test_a_cell_that_changes_a_sentence_is_found(statements, everything):
    """ZVCV-GD that ends two nats higher; a second order without bursts."""
    study = everything.study
    page = statements.PAGE.read_text(encoding="utf-8")

    def bent(change):
        records = [change(record) for record in study.records]
        results = statements.Results(dataclasses.replace(study, records=records))
        return "\n".join(statements.problems(results, page))

    def lifted(record):
        if record.cell.label != "zvcv-gd" or record.cell.family == "real-nvp":
            return record
        columns = {**record.columns, "elbo": record.column("elbo") + 2}
        return dataclasses.replace(record, columns=columns)

    def smooth(record):
        if record.cell.label != "zvcv-gd order 2":
            return record
        ratio = np.minimum(record.column("variance_ratio"), 0.98)
        return dataclasses.replace(record, columns={**record.columns, "variance_ratio": ratio})

    def apart(record):
        if (record.cell.group, record.cell.label) != ("beta", "pairwise, shared"):
            return record
        columns = {**record.columns, "elbo": record.column("elbo") - 5}
        return dataclasses.replace(record, columns=columns)

    def strict(record):
        if record.cell.group not in ("judge", "entropy"):
            return record
        columns = {**record.columns, "elbo": record.column("elbo") - 3}
        return dataclasses.replace(record, columns=columns)

    assert "criteria is not true any more" in bent(apart)
    assert "judges is not true any more" in bent(strict)
    assert "zvcv is not true any more" in bent(lifted)
    assert "Second order adds noise in bursts" in bent(smooth)
    other = page.replace("the same order, with larger gaps", "the same order")
    results = statements.Results(study)
    assert any("not on the page" in each for each in statements.problems(results, other))


def test_a_line_has_the_repetitions_that_all_of_its_rows_have(tables, everything):
    """One row without its third repetition: every cell of its line is over two then."""
    results = importlib.import_module("results")
    place, row = ("redwine", "mean-field"), ("decay", "quadcv, decaying", None)
    study = everything.study

    def lost(record):
        cell = record.cell
        return (cell.task, cell.family, cell.group, cell.label, cell.rep) == (*place, *row[:2], 2)

    kept = [record for record in study.records if not lost(record)]
    fewer = results.Results(dataclasses.replace(study, records=kept))
    whole = results.Results(study)
    keys = (results.paper("quadcv", 10), row)
    assert whole.shared(*place, keys) == (0, 1, 2)
    assert fewer.shared(*place, keys) == (0, 1)
    # Rows that were not run at all take nothing away.
    assert fewer.shared(*place, (*keys, ("decay", "no such row", None))) == (0, 1)
    assert fewer.shared(*place, [("decay", "no such row", None)]) == ()
    lines = [
        next(
            line
            for line in tables.TABLES["falls"](each).splitlines()
            if "| redwine | mean-field" in line
        )
        for each in (whole, fewer)
    ]
    assert [line.split(" | ")[2] for line in lines] == ["3", "2"]
    # The cells of the other rows follow: QuadCV at a constant step.
    gain = whole.gain(*place, keys[0], results.paper("nocv", 10), reps=(0, 1))
    assert gain.reps == 2
    assert f"{gain.middle:+.2f} ±" in lines[1]
    assert f"{gain.middle:+.2f} ±" not in lines[0]


def test_a_run_that_turned_nan_is_not_called_rising(tables, everything):
    results = importlib.import_module("results")
    study, place = everything.study, ("frisk", "mean-field")

    def bent(record):
        if (record.cell.label, record.cell.rep) != ("quadcv", 1):
            return record
        return dataclasses.replace(record, outcome={**record.outcome, "fit_status": "non-finite"})

    whole, other = (
        results.Results(dataclasses.replace(study, records=records))
        for records in (study.records, [bent(record) for record in study.records])
    )
    before, after = (
        next(line for line in tables.TABLES["ends"](each).splitlines() if "| frisk | mean-field" in line)
        for each in (whole, other)
    )
    assert "†" not in before
    assert after.count("†") == 2
    assert after.replace(" †", "") == before
    assert other.rising(*place, results.paper("quadcv", 10)) == 0


def test_the_first_sentence_counts_the_pairs_where_nothing_arrived(everything):
    results = everything
    main = [row for row in results.rows if row.group == "main"]
    first = headlines(results.study, results.rows, "")[0]
    (counts,) = re.findall(r"on (\d+) of (\d+) pairs of model and family", first)
    (left,) = re.findall(r"On (\d+) more, none of these rows arrived", first)
    won, raced = map(int, counts)
    assert won <= raced
    assert raced + int(left) == len({(row.task, row.family) for row in main})


def test_what_to_use_in_a_loop_of_ones_own_is_counted(everything):
    """Of the rows that take steps: how often the first, among the pairs where one arrived."""
    results = everything
    _, use = headlines(results.study, results.rows, "")
    ((names, won, raced),) = re.findall(r"sizes, (.+) (?:was|were each) the .* (\d+) of (\d+)", use)
    arrived = {
        (row.task, row.family)
        for row in results.rows
        if row.group == "main" and row.method == "sgd" and row.seconds_to_target is not None
    }
    assert int(raced) == len(arrived)
    assert 0 < int(won) <= int(raced)
    assert names != "auto"


def test_what_is_compared_has_one_judge(everything):
    """Rows of the grid among themselves, all others with the rows that were judged again."""
    results, others = everything, importlib.import_module("results")
    judge = {
        key: {run.outcome["judge"] for run in results.study.done if run.cell.group in groups}
        for key, groups in {
            "grid": ("ablation",),
            "others": ("decay", "judge", "entropy", "beta", "flows", "rates"),
        }.items()
    }
    assert len(judge["grid"]) == len(judge["others"]) == 1
    assert judge["grid"] != judge["others"]
    for task, family in others.PLACES:
        for label in others.ESTIMATORS:
            for draws in (10, 50):
                runs = results.runs(task, family, others.paper(label, draws))
                assert {run.outcome["judge"] for run in runs.values()} == judge["grid"]
        again = results.runs(task, family, others.plain(family))
        assert {run.outcome["judge"] for run in again.values()} == judge["others"]
        for key in (results.quiet(task, family), ("main", "auto", None)):
            runs = results.runs(task, family, key)
            assert {run.outcome["judge"] for run in runs.values()} == judge["others"]


def test_a_difference_between_rows_of_two_judges_is_refused(everything):
    """So no table and no sentence has one: they are all made without an error."""
    results, others = everything, importlib.import_module("results")
    place, quiet = ("redwine", "mean-field"), results.quiet("redwine", "mean-field")
    with pytest.raises(ValueError, match="rows of two judges: main/redwine"):
        results.gain(*place, quiet, others.paper("nocv", 10))
    assert results.gain(*place, quiet, others.plain("mean-field")) is not None
    # Each above plain gradients of its own judge.
    ours, theirs = (results.above_plain(*place, key) for key in (quiet, others.paper("quadcv", 50)))
    assert ours == results.gain(*place, quiet, others.plain("mean-field"))
    key = others.paper("quadcv", 50)
    assert theirs == results.gain(*place, key, others.paper("nocv", 10), reps=(0, 1, 2))


def test_cells_that_were_judged_by_other_draws_are_counted(everything):
    findings, others = (importlib.import_module(name) for name in ("findings", "results"))
    study = everything.study
    known = {run.cell.name for run in findings.other_draws(others.Results(study))}
    assert known
    assert not any("/decay/" in f"/{name}" for name in known)

    def elsewhere(record):
        if record.cell.name != "decay/frisk/mean-field/quadcv, decaying/rep1":
            return record
        return dataclasses.replace(
            record, columns={**record.columns, "elbo": record.column("elbo") * 1.01}
        )

    bent = dataclasses.replace(study, records=[elsewhere(record) for record in study.records])
    more = {run.cell.name for run in findings.other_draws(others.Results(bent))}
    assert more - known == {"decay/frisk/mean-field/quadcv, decaying/rep1"}


def test_the_claims_are_judged_by_rows_of_one_judge(everything):
    """Every row that a claim can ask for: the groups, labels and draws of the paper's chapter."""
    results = everything
    chapter = importlib.import_module("quietgrad.report.chapter").import_package(FOLDER / "paper")
    asked = [
        run
        for run in results.study.done
        if run.cell.group == "ablation"
        or (run.cell.group == "main" and run.cell.label in chapter.evidence.ESTIMATORS)
    ]
    assert len({run.outcome["judge"] for run in asked}) == 1
    assert len(asked) > 300


def test_a_broken_cell_makes_the_script_fail(statements, tmp_path, capsys):
    """One cell of the ablation is lifted by five nats: a claim's verdict and a sentence change."""
    folder = tmp_path / "reproduction"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("figures", "__pycache__", "implicit"))
    store = Store(folder)
    for record in store.read_all():
        if (record.cell.group, record.cell.label, record.cell.rep) == (
            "ablation",
            "zvcv-gd 20 steps",
            0,
        ):
            columns = {**record.columns, "elbo": record.column("elbo") + 5}
            store.write(dataclasses.replace(record, columns=columns))
    assert statements.main([], here=folder) == 1
    told = capsys.readouterr().out
    assert "does not have what the cells give: claims" in told
    assert "does not have what the cells give: tally" in told


def test_words_that_are_not_the_papers_are_found(statements, everything):
    results = everything
    source = " ".join(statements.quotations(results)).replace("%", r"\%")
    assert not [p for p in statements.problems(results, "", source) if "words" in p]
    shorter = source.replace("downstream performance", "the ELBO")
    assert any("not the paper's words" in p for p in statements.problems(results, "", shorter))
    # A further page is held to it, too.
    assert not [p for p in statements.problems(results, "", source, "no quotation") if "words" in p]
    found = statements.problems(results, "", source, "“where it is difficult to sample from”")
    assert "not the paper's words: where it is difficult to sample from" in found


def test_figures_on_the_page_are_there():
    page = (FOLDER.parent / "docs" / "reproduction.md").read_text(encoding="utf-8")
    shown = re.findall(r"reproduction/figures/([\w-]+)\.png", page)
    assert len(shown) >= 14
    for name in shown:
        assert (FOLDER / "figures" / f"{name}.png").stat().st_size < 1_000_000
