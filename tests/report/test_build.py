"""A report from made-up records: files, sections, escaping, and no jax."""

import dataclasses
import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fabricated
import numpy as np
import pytest

from quietgrad import report, tasks
from quietgrad.families import REGISTRY as FAMILIES
from quietgrad.report import names, tables
from quietgrad.report.chapter import CHECKOUT, chapter_of, import_package
from quietgrad.report.figures import FIGURES
from quietgrad.report.series import panel_data
from quietgrad.report.stored_study import StoredStudy, load
from quietgrad.study.summary import summarise

EVIL = "<script>alert('task')</script>"


class Outline(html.parser.HTMLParser):
    """Ids, tags, visible text and embedded JSON of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.tags, self.words, self.json, self._inside = set(), [], [], "", None
        self.links = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        self._inside = (tag, attributes)

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        tag, attributes = self._inside or ("", {})
        if attributes.get("id") == "data":
            self.json += data
        elif tag not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A study of two tasks, one with a hostile name, with failures."""
    records = fabricated.study(
        tasks=["counts", EVIL],
        families=["mean-field"],
        labels=["nocv", "quadcv", "my own <b>"],
        methods=["auto"],
        reps=2,
        ablations=False,
    )
    records.append(fabricated.unfinished("skipped", "needs <moments> & more", task="counts"))
    directory = fabricated.write(tmp_path_factory.mktemp("small"), records)
    page = report.build(directory)
    return directory, page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(small):
    return Outline(small[1])


def test_sections(outline):
    wanted = {"headlines", "panels", "target", "claims", "figures", "failures", "about", "cite"}
    assert wanted <= outline.ids


def test_a_hostile_name_stays_text(small, outline):
    assert EVIL in outline.text
    assert EVIL not in small[1]
    # The data, plotly, and the panels: no script has come in by a name.
    assert outline.tags.count("script") == 3
    assert "b" not in outline.tags
    assert "needs <moments> & more" in outline.text


def test_embedded_data_is_whole(outline):
    data = json.loads(outline.json)
    assert EVIL in data["tasks"]
    assert {one["label"] for one in data["series"]} == {"nocv", "quadcv", "my own <b>", "auto"}
    assert all(len(one["elbo"]["step"]) == len(one["elbo"]["mean"]) for one in data["series"])


def test_nothing_is_loaded_from_elsewhere(small, outline):
    outside = [link for link in outline.links if not link.startswith(("#", "data:", "figures/"))]
    assert set(outside) == {"https://arxiv.org/abs/2410.05753"}
    assert "default-src 'none'" in small[1]


def test_simulated_data_is_called_so(outline):
    assert "counts (simulated), hierarchical Poisson" in outline.text


def test_the_first_screen_says_what_was_found_and_what_to_use(outline):
    first = outline.text.split("In detail")[0]
    assert "auto was within 1 nat of the best ELBO first" in first
    assert "on 2 of 2 models" in first
    assert "the best of NoCV, ZVCV-GD and QuadCV took" in first
    assert "Use auto, which is quietgrad.fit(target, family) with no settings" in first
    told = r"14 claims have \d+ parts, of which these runs judge \d+ on stand-ins for its data: "
    assert re.search(told, first)


def test_a_method_is_in_the_panels_of_every_number_of_draws(outline):
    data = json.loads(outline.json)
    auto = [one for one in data["series"] if one["label"] == "auto"]
    assert len(auto) == 2
    assert all(one["draws"] is None and one["ends"] and one["ratio"] is None for one in auto)
    assert data["draws"] == [10, 50]
    # Medians over repetitions at the same time: both end at the answer.
    assert all(np.all(np.diff(one["elbo"]["seconds"]) > 0) for one in auto)
    assert data["timed"]


def test_where_a_run_did_not_arrive_it_says_how_much_is_missing(outline):
    table = outline.text.split("Time to target")[2].split("The paper's claims")[0]
    assert re.search(r"ends \d+\.\d\d short", table)
    assert "never" not in table


def test_claims_without_runs_are_folded_away_and_say_what_is_missing(small, outline):
    before, after = small[1].split("for which runs are missing here")
    assert 'class="verdict' in before.split('id="claims"')[1]
    open_ = after.split('id="figures"')[0]
    assert open_.count('class="verdict cannot_tell"') == open_.count('scope="row"')
    assert "not judged: needs" in outline.text.lower()


def test_what_was_run_is_told(outline):
    for fact in ("0123456789ab with uncommitted changes", "jax 0.10.0", "a made-up processor"):
        assert fact in outline.text
    assert "quietgrad study made-up --reps 2" in outline.text
    assert "2026-01-02" in outline.text


def test_figures_without_rows_are_listed_with_a_reason(small, outline):
    drawn = {path.name for path in (small[0] / "figures").iterdir()}
    kinds = ("elbo-time", "elbo-iteration", "variance-ratio")
    assert drawn == {f"{kind}-mean-field-median{end}" for kind in kinds for end in (".svg", ".png")}
    assert "no finished run with real-nvp" in outline.text
    assert "no finished mean-field run on redwine or diabetes" in outline.text
    assert "at most two repetitions" in outline.text


def test_every_figure_of_the_paper_is_planned_for_a_whole_study():
    study = StoredStudy(
        Path(), fabricated.study(), {"spec": {"chapter": fabricated.CHAPTER}, "name": ""}
    )
    more = chapter_of(study).figures
    plans = [plan for figure in (*FIGURES, *more) for plan in figure(study)]
    grids = {
        f"{kind}-{family}-{statistic}"
        for kind in ("elbo-time", "elbo-iteration", "variance-ratio")
        for family in fabricated.FAMILIES
        for statistic in ("median", "mean")
    }
    alone = {f"repetitions-{kind}" for kind in ("elbo", "variance-ratio", "lppd", "lppd-zoom")}
    assert {plan.name for plan in plans} == grids | alone | {
        "ablation-order",
        "ablation-inner-steps",
        "early-quadcv",
    }
    assert all(plan.draw is not None and plan.reason == "" for plan in plans)


def test_a_study_without_a_chapter_has_a_page_without_claims(tmp_path, monkeypatch):
    """As in an installed package, where there is no repository beside it."""
    records = fabricated.study(tasks=["frisk"], families=["mean-field"], reps=1, ablations=False)
    directory = fabricated.write(tmp_path, records)
    monkeypatch.setattr("quietgrad.report.chapter.CHECKOUT", tmp_path)
    page = Outline(report.build(directory).read_text(encoding="utf-8"))
    assert "claims" not in page.ids
    assert "#claims" not in page.links
    assert {"headlines", "panels", "target", "figures"} <= page.ids


def test_a_chapter_of_ones_own(tmp_path):
    records = fabricated.study(tasks=["frisk"], families=["mean-field"], reps=1, ablations=False)
    directory = fabricated.write(tmp_path / "results", records)
    own = tmp_path / "own_chapter"
    own.mkdir()
    (own / "__init__.py").write_text(
        "from quietgrad.report.chapter import Chapter\n"
        "from quietgrad.study.claim import Part, Verdict, conclude\n"
        "def chapter(study):\n"
        "    part = Part(Verdict.HOLDS, 'there are some', f'{len(study.records)} cells')\n"
        "    claim = conclude(1, 'a', 'b', [part])\n"
        "    return Chapter('My claims', 'https://example.org', 'It holds.', [claim])\n"
    )
    page = Outline(report.build(directory, chapter=own).read_text(encoding="utf-8"))
    assert "My claims" in page.text
    assert f"{len(records)} cells" in page.text
    (own / "__init__.py").write_text("")
    sys.modules.pop("quietgrad_chapter_own_chapter")
    with pytest.raises(ValueError, match=r"defines no function chapter\(study\)"):
        report.build(directory, chapter=own)
    with pytest.raises(FileNotFoundError, match="not a package"):
        import_package(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../elsewhere", "/tmp", "reproduction/nowhere"])
def test_a_stored_study_runs_no_code_from_outside_the_checkout(name):
    study = StoredStudy(Path(), [], {"spec": {"chapter": name}, "name": "made-up"})
    assert not chapter_of(study).claims
    assert (CHECKOUT / fabricated.CHAPTER / "__init__.py").is_file()


def test_names_do_not_reach_into_other_directories():
    records = fabricated.study(tasks=["frisk"], families=["../../up"], reps=1, ablations=False)
    plans = [plan for figure in FIGURES for plan in figure(StoredStudy(Path(), records, {}))]
    assert "elbo-time-up-median" in {plan.file for plan in plans}
    assert not any("/" in plan.file for plan in plans)


@pytest.mark.slow
def test_every_kind_of_figure_is_drawn(tmp_path):
    records = fabricated.study(
        tasks=["counts", "diabetes"],
        families=["mean-field"],
        labels=["nocv", "zvcv-gd"],
        methods=["saa"],
        reps=3,
        draws=[10],
        steps=1000,
    )
    out = tmp_path / "elsewhere"
    page = report.build(fabricated.write(tmp_path, records), statistic="mean", out=out)
    assert page == out / "index.html"
    for kind in ("elbo-time-mean-field-mean", "repetitions-lppd-zoom", "ablation-inner-steps"):
        assert b"<svg" in (out / "figures" / f"{kind}.svg").read_bytes()[:1000]
        assert (out / "figures" / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert "ELBO against time, Mean-field Gaussian (means)" in text
    # Those of the other statistic are files beside the page.
    assert "ELBO against time, Mean-field Gaussian (medians)" not in text
    assert (out / "figures" / "elbo-time-mean-field-median.svg").exists()


def test_a_study_in_which_nothing_finished(tmp_path):
    failed = fabricated.unfinished("failed", "no memory")
    later = fabricated.unfinished("failed", "not yet", task="frisk")
    directory = fabricated.write(tmp_path, [failed], missing=[later])
    text = Outline(report.build(directory).read_text(encoding="utf-8")).text
    assert "0 cells of 2 finished (1 failed, 1 not run yet)" in text
    assert "Not run yet: 1 of the planned cells" in text
    assert "main/frisk/mean-field/quadcv/L10/rep99" in text
    assert "No cell of the main grid has finished." in text


def test_runs_cut_short_by_non_finite_parameters(tmp_path):
    records = fabricated.study(tasks=["frisk"], families=["mean-field"], reps=2, ablations=False)
    for name, column in records[0].columns.items():
        if name not in ("step", "seconds"):
            column[5:] = float("nan")
    outcome = {**records[0].outcome, "fit_status": "non-finite"}
    records[0] = dataclasses.replace(records[0], outcome=outcome)
    study = load(fabricated.write(tmp_path, records))
    (row,) = tables.non_finite(study)
    assert row["cell"] == records[0].cell.name
    # NaN is not JSON.
    json.dumps(panel_data(study, "median"), allow_nan=False)


def test_misuse(tmp_path):
    with pytest.raises(FileNotFoundError, match="no results in"):
        report.build(tmp_path)
    with pytest.raises(ValueError, match="unknown statistic 'mode'; known: median, mean"):
        report.build(tmp_path, statistic="mode")


def test_the_command_builds_without_jax(tmp_path):
    records = fabricated.study(
        tasks=["frisk"], families=["mean-field"], draws=[10], reps=1, steps=500, ablations=False
    )
    fabricated.write(tmp_path, records)
    code = (
        "import sys\nfrom quietgrad.cli import app\n"
        f"code = app(['report', {str(tmp_path)!r}], result_action='return_value')\n"
        "sys.exit(code or 'jax' in sys.modules)"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip().replace("\n", "").endswith("index.html")


def test_names_cover_what_is_registered():
    assert set(names.TASKS) == set(tasks.REGISTRY)
    # A study may bring families of its own.
    assert set(FAMILIES) <= set(names.FAMILIES)
    assert {name for name, entry in tasks.REGISTRY.items() if entry.simulated} == names.SIMULATED


def test_a_row_that_was_run_again_says_in_which_group(tmp_path):
    records = fabricated.study(tasks=["frisk"], families=["mean-field"], labels=["nocv"], reps=2)
    again = [
        dataclasses.replace(one, cell=dataclasses.replace(one.cell, group="judge"))
        for one in records
        if one.cell.draws == 10 and one.cell.group == "main"
    ]
    study = load(fabricated.write(tmp_path, [*records, *again]))
    (place,) = tables.time_to_target(study, summarise(study.records))
    named = sorted(row["label"] for row in place.rows if row["label"].startswith("NoCV"))
    assert named == ["NoCV", "NoCV", "NoCV (judge)"]
