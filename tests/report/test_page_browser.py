"""The page in a real browser, with the network blocked."""

import contextlib
import shutil

import fabricated
import pytest

from quietgrad import report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    records = fabricated.study(
        tasks=["frisk", EVIL], families=["mean-field", "low-rank"], reps=2, ablations=False
    )
    return report.build(fabricated.write(tmp_path_factory.mktemp("page"), records)).as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(
    scope="module", params=[(1400, 900, "light"), (390, 844, "dark")], ids=["wide", "phone-dark"]
)
def page(request, browser, address):
    """The open page; `page.seen` has its requests and complaints."""
    width, height, scheme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
    )
    opened = context.new_page()
    opened.seen = {"requests": [], "complaints": []}
    opened.on("request", lambda asked: opened.seen["requests"].append(asked.url))
    opened.on("console", lambda said: opened.seen["complaints"].append(said.text))
    opened.on("pageerror", lambda error: opened.seen["complaints"].append(str(error)))
    opened.on("dialog", lambda dialog: opened.seen["complaints"].append(dialog.message))
    opened.goto(address)
    opened.wait_for_selector("#elbo-plot .main-svg")
    yield opened
    context.close()


def lines(page, plot):
    """The traces that plotly has drawn."""
    read = "plot => document.getElementById(plot).data.map(({name, x, y}) => ({name, x, y}))"
    return page.evaluate(read, plot)


@contextlib.contextmanager
def selected(page, name, value):
    """The page with another choice, for a while."""
    before = page.input_value(f"select[name={name}]")
    page.select_option(f"select[name={name}]", value)
    yield
    page.select_option(f"select[name={name}]", before)


@pytest.mark.turns(2)
def test_nothing_is_asked_for_and_nothing_complains(page):
    page.wait_for_timeout(300)
    outside = [url for url in page.seen["requests"] if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert page.seen["complaints"] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("task", EVIL), ("family", "low-rank"), ("draws", "50"), ("x", "step")],
)
def test_a_filter_changes_the_plot(page, name, value):
    before, picture = lines(page, "elbo-plot"), page.inner_html("#elbo-plot")
    with selected(page, name, value):
        assert lines(page, "elbo-plot") != before
        assert page.inner_html("#elbo-plot") != picture
    assert lines(page, "elbo-plot") == before
    assert page.seen["complaints"] == []


def test_all_draws_at_once(page):
    before = len(lines(page, "ratio-plot"))
    with selected(page, "draws", "all"):
        assert len(lines(page, "ratio-plot")) == 2 * before


def test_the_page_does_not_scroll_sideways(page):
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0


def test_controls_have_names(page):
    for control in page.query_selector_all("form select, form input"):
        assert control.evaluate("one => one.labels.length") == 1
