"""From a directory of records to figures and a page."""

from pathlib import Path

from ..study.summary import summarise
from .chapter import chapter_of
from .curves import STATISTICS
from .figures import draw_all
from .page import render
from .stored_study import load


def build(
    directory: Path | str,
    *,
    statistic: str = "median",
    out: Path | str | None = None,
    chapter: Path | str | None = None,
) -> Path:
    """Make the report of a study and return the path of its page.

    Everything comes from the records in `directory`, so it can be called again at any time, also
    while the study is running. Figures go to `figures/` and the page to `index.html`, in `out` or
    else in `directory`. `statistic` ("median" or "mean") is what the page shows first; figures are
    drawn with both. `chapter` is the folder of a package with claims and figures (see `report.chapter`);
    left out, it is the one that the study's spec names, if it is in this checkout.
    """
    if statistic not in STATISTICS:
        raise ValueError(f"unknown statistic {statistic!r}; known: {', '.join(STATISTICS)}")
    study = load(Path(directory))
    target = Path(directory if out is None else out)
    own = chapter_of(study, None if chapter is None else Path(chapter))
    figures = draw_all(study, target / "figures", own.figures)
    page = render(study, summarise(study.records), own, figures, statistic)
    index = target / "index.html"
    index.write_text(page, encoding="utf-8")
    return index
