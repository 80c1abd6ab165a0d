"""The page: one HTML file with everything in it, that asks no other host for anything."""

import base64
import io
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup
from PIL import Image
from plotly.offline import get_plotlyjs

from .._version import __version__
from ..study.claims import Claim
from ..study.summary import Row
from . import tables
from .figures import Drawn
from .series import panel_data
from .study import Study
from .words import headlines

PAPER = "https://arxiv.org/abs/2410.05753"


def render(
    study: Study,
    rows: Sequence[Row],
    claims: Sequence[Claim],
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
        headlines=headlines(study, rows, claims),
        about=tables.about(study),
        spec=_spec(study),
        data=panel_data(study, statistic),
        places=tables.time_to_target(study, rows),
        claims=claims,
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
        "picture": base64.b64encode(_smaller(drawn.picture)).decode("ascii"),
    }


def _smaller(picture: bytes) -> bytes:
    """The picture without the alpha channel, which nothing uses, packed tightly."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").save(out, format="png", optimize=True)
    return out.getvalue()


def _spec(study: Study) -> str:
    spec: Any = study.manifest.get("spec")
    return spec if isinstance(spec, str) else json.dumps(spec, indent=2, ensure_ascii=False)


def _commands(study: Study) -> list[str]:
    out = study.directory.name
    again = study.manifest.get("command") or f"quietgrad study {study.name} --out {out}"
    return [f"pip install 'quietgrad[study]=={__version__}'", str(again), f"quietgrad report {out}"]
