"""The page: one HTML file with everything in it, that asks no other host for anything."""

import base64
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from .._version import __version__
from ..study.store import studies
from ..study.summary import Row
from . import tables
from .bias import bias_rows
from .chapter import Chapter
from .figures import Drawn
from .series import panel_data
from .stored_study import StoredStudy
from .words import details, headlines

PAPER = "https://arxiv.org/abs/2410.05753"


def render(
    study: StoredStudy,
    rows: Sequence[Row],
    chapter: Chapter,
    figures: Sequence[Drawn],
    statistic: str,
) -> str:
    """The HTML of a study's page."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["minus"] = _minus
    return environment.get_template("page.html").render(
        name=study.title,
        description=study.description,
        headlines=headlines(study, rows, chapter.summary),
        details=details(study, rows),
        compiled=any(row.compile_seconds > 0 for row in rows),
        about=tables.about(study),
        spec=_spec(study),
        data=panel_data(study, statistic),
        places=tables.time_to_target(study, rows),
        claims_title=chapter.title,
        claims_source=chapter.source,
        claims=[claim for claim in chapter.claims if claim.within_reach],
        open_claims=[claim for claim in chapter.claims if not claim.within_reach],
        bias=bias_rows(study.directory),
        unfinished=tables.unfinished(study),
        missing=study.missing,
        non_finite=tables.non_finite(study),
        cells=tables.cells(study),
        figures=[_figure(drawn) for drawn in figures if drawn.picture and _shown(drawn, statistic)],
        left_out=[drawn.plan for drawn in figures if not drawn.picture],
        commands=_commands(study),
        paper=PAPER,
        version=__version__,
        style=Markup(_template("style.css")),
        script=Markup(_template("panels.js")),
        plotly=Markup(get_plotlyjs()),
    )


def _template(name: str) -> str:
    return resources.files("quietgrad.report").joinpath("templates", name).read_text(encoding="utf-8")


def _minus(text: str) -> str:
    """A hyphen before a number, made a minus sign."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


def _shown(drawn: Drawn, statistic: str) -> bool:
    return drawn.plan.statistic in (None, statistic)


def _figure(drawn: Drawn) -> dict[str, str]:
    plan = drawn.plan
    return {
        "title": plan.title,
        "caption": plan.caption,
        "file": plan.file,
        "picture": base64.b64encode(drawn.picture).decode("ascii"),
    }


def _spec(study: StoredStudy) -> str:
    specs: Any = study.specs or study.manifest.get("spec")
    return specs if isinstance(specs, str) else json.dumps(specs, indent=2, ensure_ascii=False)


def _commands(study: StoredStudy) -> list[str]:
    out = study.directory.name
    usual = {"name": study.name, "command": f"quietgrad study {study.name} --out {out}"}
    again = [str(each.get("command") or usual["command"]) for each in studies(study.manifest) or [usual]]
    return [f"pip install 'quietgrad[study]=={__version__}'", *again, f"quietgrad report {out}"]
