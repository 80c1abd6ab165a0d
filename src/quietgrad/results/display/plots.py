"""Figures of a fit: the way there, where the noise is, and the marginals of q."""

import io
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..._util.extras import needs_extra
from ..._util.html import AMBER, BLUE
from .curve import Curve
from .noise import Noise
from .table import elements

with needs_extra("plot", "a figure"):
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

GREY = "#777777"
COLUMNS, PANEL, DPI = 4, (2.9, 2.0), 120
BINS = 40
# Parts of the parameters whose noise is shown; the others are the quieter ones.
MOST_PARTS = 12
# Histograms leave out this share of the draws on each side: a heavy tail would flatten the rest.
TAIL = 0.002
# Characters of a name.
LONGEST = 28
# Gradients without noise are shown this far below the largest.
QUIETEST = 1e-6


class FitFigure(Figure):
    """A matplotlib figure that stands by itself: shown once in a notebook, and not kept by pyplot."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=DPI)
        return out.getvalue()


def fit_figure(
    title: str,
    curve: Curve | None,
    noise: tuple[str, Sequence[Noise]] | None,
    draws: Mapping[str, Any],
    corrected: tuple[str, Mapping[str, Any]] | None = None,
    *,
    most: int,
) -> FitFigure:
    """ELBO and noise above, marginals of the first `most` numbers below."""
    shown = list(islice(elements(draws), most))
    other = {} if corrected is None else dict(islice(elements(corrected[1]), most))
    rows = math.ceil(len(shown) / COLUMNS)
    heights = [3.2] if rows == 0 else [3.2, rows * PANEL[1]]
    figure = _figure(sum(heights) + 0.3)
    above, *below = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    axes = above.subplots(1, 1 if noise is None else 2, squeeze=False)[0]
    _elbo(axes[0], curve)
    if noise is not None:
        _noise(axes[1], *noise)
    for part in below:
        _marginals(part, shown, other, rows)
    words = "" if corrected is None else f"; outlined: {corrected[0]}"
    figure.suptitle(f"{title}{words}", fontsize=9)
    return figure


def marginals(draws: Mapping[str, Any], *, most: int = 12) -> FitFigure:
    """Histograms of the first `most` numbers."""
    shown = list(islice(elements(draws), most))
    rows = max(1, math.ceil(len(shown) / COLUMNS))
    figure = _figure(rows * PANEL[1])
    _marginals(figure, shown, {}, rows)
    return figure


def _figure(height: float) -> FitFigure:
    figure = FitFigure(figsize=(COLUMNS * PANEL[0], height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def _marginals(
    part: Any,
    shown: Sequence[tuple[str, np.ndarray]],
    other: Mapping[str, np.ndarray],
    rows: int,
) -> None:
    """Panels in a figure or a part of one."""
    for place, (label, values) in enumerate(shown):
        axes = part.add_subplot(rows, min(COLUMNS, len(shown)), place + 1)
        _marginal(axes, label, values, other.get(label))


def _elbo(axes: Axes, curve: Curve | None) -> None:
    axes.set_xlabel("seconds since the call", fontsize=9)
    axes.set_ylabel("ELBO, nats", fontsize=9)
    axes.tick_params(labelsize=8)
    if curve is None:
        axes.text(0.5, 0.5, "no evaluation was finite", transform=axes.transAxes, ha="center")
        return
    for begin, end in curve.compiling:
        axes.axvspan(begin, end, color=AMBER, alpha=0.18, linewidth=0)
    axes.fill_between(
        curve.seconds, curve.elbo - curve.error, curve.elbo + curve.error, color=BLUE, alpha=0.2
    )
    marker = "o" if len(curve.elbo) <= 60 else ""
    (line,) = axes.plot(curve.seconds, curve.elbo, color=BLUE, marker=marker, markersize=3)
    line.set_label("ELBO ± standard error")
    axes.set_xlim(0.0, curve.total)
    axes.set_ylim(curve.bottom, curve.top)
    axes.ticklabel_format(axis="y", useOffset=False)
    handles: list[Any] = [line]
    if curve.compiling:
        seconds = sum(end - begin for begin, end in curve.compiling)
        handles.append(Patch(color=AMBER, alpha=0.18, label=f"compiling, {seconds:.1f} s"))
    _legend(axes, handles)
    _clean(axes)


def _noise(axes: Axes, name: str, parts: Sequence[Noise]) -> None:
    """Sd of the gradient by part, against that of independent draws; the mean as a tick."""
    shown = list(parts[:MOST_PARTS])[::-1]
    sizes = np.asarray([[part.std, part.plain, part.mean] for part in shown])
    floor = QUIETEST * max(float(np.nanmax(sizes)), 1e-30)
    sizes, places = np.maximum(np.nan_to_num(sizes), floor), np.arange(len(shown))
    axes.hlines(places, sizes[:, 0], sizes[:, 1], color=GREY, linewidth=0.8, alpha=0.6)
    axes.plot(sizes[:, 1], places, "o", color=GREY, markerfacecolor="none", label="plain draws, sd")
    axes.plot(sizes[:, 0], places, "o", color=BLUE, label=f"{name}, sd")
    axes.plot(sizes[:, 2], places, "|", color="black", markersize=9, label="size of the mean")
    axes.set_xscale("log")
    axes.set_yticks(places, [_plain(part.label) for part in shown], fontsize=8)
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlabel("gradient at the answer, root mean square", fontsize=9)
    _legend(axes)
    _clean(axes)


def _marginal(axes: Axes, label: str, values: np.ndarray, corrected: np.ndarray | None) -> None:
    axes.set_title(_plain(label), fontsize=8)
    axes.set_yticks([])
    every = values if corrected is None else np.concatenate([values, corrected])
    every = every[np.isfinite(every)]
    if every.size == 0:
        axes.text(0.5, 0.5, "not finite", transform=axes.transAxes, ha="center")
        return
    low, high = np.quantile(every, [TAIL, 1 - TAIL])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    axes.hist(values, bins=edges, density=True, color=BLUE, alpha=0.55)
    if corrected is not None:
        axes.hist(corrected, bins=edges, density=True, color="black", histtype="step")
    axes.tick_params(labelsize=7)
    axes.spines["left"].set_visible(False)
    _clean(axes)


def _legend(axes: Axes, handles: Sequence[Any] | None = None) -> None:
    """Above the panel, where it hides nothing."""
    found = axes.get_legend_handles_labels()[0] if handles is None else list(handles)
    axes.legend(
        handles=found, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=7, frameon=False
    )


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _plain(text: str) -> str:
    """Text without matplotlib's mathematics, since a name may have a dollar sign, and not too long."""
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return text.replace("$", r"\$")
