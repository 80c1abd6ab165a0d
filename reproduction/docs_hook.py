"""A hook of mkdocs: the published study on the documentation's site, with its figures and its page.

Figures are kept once, in reproduction/figures; docs/reproduction.md refers to them as seen from docs/.
"""

import os
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
FIGURES = "reproduction/figures"
PAGE = "reproduction.md"
MARK = "<!-- page -->"
# Raw HTML: mkdocs looks for the files of Markdown links before this one is made.
LINK = (
    '\nThe <a href="study/index.html">page of the study</a> has all of it in one file, with panels to '
    "explore and how each claim was measured.\n"
)


def on_files(files: Files, config: Any) -> Files:
    """Put the figures among the files of the site."""
    for path in sorted((HERE / "figures").glob("*.png")):
        files.append(File.generated(config, f"{FIGURES}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead from the page to the figures, and to the study's own page."""
    if page.file.src_uri != PAGE:
        return markdown
    return markdown.replace(f"](../{FIGURES}/", f"]({FIGURES}/").replace(MARK, LINK)


def on_post_build(config: Any) -> None:
    """Make the study's own page from its cells."""
    from quietgrad import report

    folder = Path(config["site_dir"]) / "reproduction" / "study"
    os.makedirs(folder, exist_ok=True)
    report.build(HERE, out=folder)
