"""A fit in a notebook: verdict, ending, the way there, and the posterior in numbers."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..._util.html import AMBER, GREEN, RED, Html, badge, element, folded, joined
from ...diagnostics.diagnosis import Diagnosis
from .curve import curve_of
from .svg import svg
from .table import Row, count, elements, summary_row

# Rows that are seen at once, and those that are seen unfolded; the rest is counted.
FIRST, MOST = 10, 200
COLUMNS = ("", "mean", "sd", "5.5 %", "94.5 %")
NOT_DIAGNOSED = (
    "Not diagnosed yet: result.diagnose() says whether to trust it, in about the time of the fit."
)


def card(
    headline: str,
    status: str,
    hint: str,
    *,
    good: bool,
    failed: bool,
    history: Mapping[str, np.ndarray],
    clock: Mapping[str, float],
    decisions: Sequence[Any],
    draws: Mapping[str, Any],
    diagnosis: Diagnosis | None,
) -> Html:
    """All of a fit on one card. `draws` are those of q, by name."""
    colour = GREEN if good else RED if failed else AMBER
    curve = curve_of(history, clock)
    told = element("p", NOT_DIAGNOSED, style="margin:.4em 0;opacity:.75")
    return element(
        "div",
        element("div", headline, style="font-weight:600;margin-bottom:.4em"),
        element("p", badge(status, colour), " ", hint, style="margin:.4em 0"),
        told if diagnosis is None else Html(diagnosis._repr_html_()),
        None if curve is None else svg(curve),
        element("p", _seconds(clock), style="margin:.2em 0 .6em;opacity:.75"),
        _table(draws),
        folded("how it went", *(element("div", decision) for decision in decisions))
        if decisions
        else None,
        style="font-family:sans-serif;font-size:13px;line-height:1.4;max-width:60em",
    )


def _seconds(clock: Mapping[str, float]) -> str:
    parts = (f"{clock[name]:.2f} {name}" for name in ("compile", "optimise", "evaluate", "other"))
    return f"{clock['total']:.2f} s: {', '.join(parts)}"


def _table(draws: Mapping[str, Any]) -> Html:
    total, some = count(draws), elements(draws)
    rows = [summary_row(*one) for one in islice(some, MOST)]
    shown = [element("div", "draws of q:"), _rows(rows[:FIRST])]
    if len(rows) > FIRST:
        more = _rows(rows[FIRST:])
        shown.append(folded(f"{len(rows) - FIRST} more of {total:,}", more))
    if total > len(rows):
        shown.append(element("p", f"{total - len(rows):,} are left out; result.summary() has all."))
    return joined(*shown)


def _rows(rows: Sequence[Row]) -> Html:
    right = "text-align:right;padding:1px 10px"
    left = "text-align:left;padding:1px 10px;font-family:monospace"
    head = element("tr", *(element("th", name, style=right) for name in COLUMNS))
    body = [
        element(
            "tr",
            element("td", row.label, style=left),
            *(element("td", f"{value:.3g}", style=right) for value in row[1:]),
        )
        for row in rows
    ]
    style = (
        "border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent;font-size:inherit"
    )
    return element("table", element("thead", head), element("tbody", *body), style=style)
