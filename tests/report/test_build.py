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
import pytest

from quietgrad import report, tasks
from quietgrad.families import REGISTRY as FAMILIES
from quietgrad.report import names
from quietgrad.report.figures import FIGURES
from quietgrad.report.stored_study import StoredStudy

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
    assert {one["label"] for one in data["series"]} == {"nocv", "quadcv", "my own <b>"}
    assert all(len(one["elbo"]["step"]) == len(one["elbo"]["mean"]) for one in data["series"])


def test_nothing_is_loaded_from_elsewhere(small, outline):
    outside = [link for link in outline.links if not link.startswith(("#", "data:", "figures/"))]
    assert outside == ["https://arxiv.org/abs/2410.05753"]
    assert "default-src 'none'" in small[1]


def test_simulated_data_is_called_so(outline):
    assert "counts (simulated), hierarchical Poisson" in outline.text


def test_never_is_written_where_a_run_did_not_arrive(outline):
    assert "never" in outline.text


def test_what_was_run_is_told(outline):
    for fact in ("0123456789ab with uncommitted changes", "jax 0.10.0", "a made-up processor"):
        assert fact in outline.text
    assert "quietgrad study made-up --reps 2" in outline.text
    assert "2026-01-02" in outline.text


def test_figures_without_rows_are_listed_with_a_reason(small, outline):
    drawn = {path.name for path in (small[0] / "figures").iterdir()}
    kinds = ("elbo-time", "elbo-iteration", "variance-ratio")
    assert drawn == {f"{kind}-mean-field-median{end}" for kind in kinds for end in (".pdf", ".png")}
    assert "no finished run with real-nvp" in outline.text
    assert "no finished mean-field run on redwine or diabetes" in outline.text
    assert "at most two repetitions" in outline.text


def test_every_figure_of_the_paper_is_planned_for_a_whole_study():
    plans = [plan for figure in FIGURES for plan in figure(StoredStudy(Path(), fabricated.study(), {}))]
    grids = {
        f"{kind}-{family}-{statistic}"
        for kind in ("elbo-time", "elbo-iteration", "variance-ratio")
        for family in fabricated.FAMILIES
        for statistic in ("median", "mean")
    }
    alone = {f"repetitions-{kind}" for kind in ("elbo", "variance-ratio", "lppd", "lppd-zoom")}
    assert {plan.name for plan in plans} == grids | alone | {"ablation-order", "ablation-inner-steps"}
    assert all(plan.draw is not None and plan.reason == "" for plan in plans)


def test_names_do_not_reach_into_other_directories():
    records = fabricated.study(tasks=["frisk"], families=["../../up"], reps=1, ablations=False)
    plans = [plan for figure in FIGURES for plan in figure(StoredStudy(Path(), records, {}))]
    assert "elbo-time-up-median" in {plan.file for plan in plans}
    assert not any("/" in plan.file for plan in plans)


def test_every_kind_of_figure_is_drawn(tmp_path):
    records = fabricated.study(
        tasks=["counts", "diabetes"], families=["mean-field"], reps=3, draws=[10], steps=1000
    )
    out = tmp_path / "elsewhere"
    page = report.build(fabricated.write(tmp_path, records), statistic="mean", out=out)
    assert page == out / "index.html"
    for kind in ("elbo-time-mean-field-mean", "repetitions-lppd-zoom", "ablation-inner-steps"):
        assert (out / "figures" / f"{kind}.pdf").read_bytes().startswith(b"%PDF")
        assert (out / "figures" / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert "ELBO against time, Mean-field Gaussian (means)" in text
    # Those of the other statistic are files beside the page.
    assert "ELBO against time, Mean-field Gaussian (medians)" not in text
    assert (out / "figures" / "elbo-time-mean-field-median.pdf").exists()


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
    page = report.build(fabricated.write(tmp_path, records)).read_text(encoding="utf-8")
    assert "turned NaN or infinite" in page
    json.loads(Outline(page).json, parse_constant=pytest.fail)


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
    assert set(names.FAMILIES) == set(FAMILIES)
    assert {name for name, entry in tasks.REGISTRY.items() if entry.simulated} == names.SIMULATED
