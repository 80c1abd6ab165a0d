"""From a directory of records to figures and a page."""

from pathlib import Path

from ..study.claims import judge
from ..study.summary import summarise
from .curves import STATISTICS
from .figures import draw_all
from .page import render
from .stored_study import load


def build(directory: Path | str, *, statistic: str = "median", out: Path | str | None = None) -> Path:
    """Make the report of a study and return the path of its page.

    Everything comes from the records in `directory`, so it can be called again at any time, also
    while the study is running. Figures go to `figures/` and the page to `index.html`, in `out` or
    else in `directory`. `statistic` ("median" or "mean") is what the page shows first; figures are
    drawn with both.
    """
    if statistic not in STATISTICS:
        raise ValueError(f"unknown statistic {statistic!r}; known: {', '.join(STATISTICS)}")
    study = load(Path(directory))
    target = Path(directory if out is None else out)
    figures = draw_all(study, target / "figures")
    page = render(study, summarise(study.records), judge(study.records), figures, statistic)
    index = target / "index.html"
    index.write_text(page, encoding="utf-8")
    return index
