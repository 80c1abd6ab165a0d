"""Panels, legends and files: what all matplotlib figures of a report have in common."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from PIL import Image

from .curves import Curve
from .names import Style, label_name

SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.grid": True,
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    # Text stays text, and the same figure is the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "quietgrad",
}
WIDTH, HEIGHT = 3.1, 2.35
DPI = 110
AXES = {
    "step": "iteration",
    "seconds": "seconds of optimisation",
    "joined": "seconds: steps × time of a step",
}
# A time axis is logarithmic if one run takes this many times as long as another.
DECADE = 10.0


def grid(
    titles: Sequence[str], rows: Sequence[str], *, share_y: Literal["col", "all", "none"] = "col"
) -> tuple[Figure, np.ndarray]:
    """A figure with a column for each title and a row for each row label."""
    size = (max(WIDTH * len(titles), 1.6 * WIDTH), HEIGHT * len(rows) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), len(titles), squeeze=False, sharey=share_y)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(plain(title.replace(", ", "\n", 1)))
    for axis, label in zip(axes[:, 0], rows, strict=True):
        axis.set_ylabel(plain(label))
    return figure, axes


def plain(text: str) -> str:
    """Text that matplotlib prints as it is, without reading mathematics into it."""
    return text.replace("$", r"\$")


def line(
    axis: Axes,
    curve: Curve,
    x: str,
    statistic: str,
    style: Style,
    *,
    end: float = math.nan,
    band: bool = True,
) -> None:
    """A curve with the range over its repetitions behind it.

    A method that ended itself has a dot there, and a thin line at its answer up to `end`.
    """
    across = curve.x(x)
    if band and curve.reps > 1:
        axis.fill_between(across, curve.low, curve.high, color=style.colour, alpha=0.13, lw=0)
    marker = "o" if len(across) == 1 else None
    middle = curve.middle(statistic)
    axis.plot(across, middle, color=style.colour, ls=style.dash, marker=marker)
    if curve.ends:
        axis.plot(across[-1:], middle[-1:], color=style.colour, marker="o", ms=5, zorder=3)
        axis.plot([across[-1], end], [middle[-1]] * 2, color=style.colour, lw=0.8, zorder=1)


def last_x(curves: Iterable[Curve], x: str) -> float:
    """Where the longest curve ends; NaN if there is none with such an axis."""
    ends = [float(one.x(x)[-1]) for one in curves]
    return max((end for end in ends if math.isfinite(end)), default=math.nan)


def time_axis(axis: Axes, curves: Iterable[Curve]) -> None:
    """An axis for all these curves: logarithmic where some curve ends long before another."""
    ends = [float(one.seconds[-1]) for one in curves if one.seconds[-1] > 0]
    if not ends:
        return
    if max(ends) > DECADE * min(ends):
        axis.set_xscale("log")
        axis.set_xlim(min(ends) / 3, max(ends) * 1.1)
    else:
        axis.set_xlim(0.0, max(ends) * 1.05)


def finish_axis(axis: Axes, x: str | None) -> None:
    """Few, plain tick labels; and the name of the x axis unless it is None."""
    if axis.get_xscale() == "log":
        low, high = axis.get_xlim()
        subs = (1.0, 3.0) if high < 300 * low else (1.0,)
        axis.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(_tick))
    if axis.get_yscale() == "linear":
        axis.yaxis.set_major_locator(MaxNLocator(5))
        axis.ticklabel_format(axis="y", style="plain", useOffset=False)
    else:
        low, high = axis.get_ylim()
        # Labels of three lines a decade overlap on an axis of more than two decades.
        subs = (1, 2, 5) if high < 200 * low else (1, 3) if high < 3000 * low else (1,)
        axis.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
    if x is not None:
        axis.set_xlabel(AXES[x])


def finish_symlog(axis: Axes) -> None:
    """Ticks at powers of ten on either side of zero, few enough to be read."""
    reach = max(map(abs, axis.get_ylim()))
    powers = [10.0**power for power in range(math.ceil(math.log10(max(reach, 10.0))))]
    shown = powers[:: max(1, math.ceil(len(powers) / 3))]
    low, high = axis.get_ylim()
    axis.set_yticks([tick for tick in (*(-p for p in shown), 0.0, *shown) if low <= tick <= high])
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, _: int | None) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def nothing(axis: Axes, text: str = "no finished run") -> None:
    """Say in place of an empty panel why it is empty."""
    axis.text(0.5, 0.5, text, ha="center", va="center", color="#777777", transform=axis.transAxes)
    axis.set_axis_off()


def log_scale(axis: Axes, curves: Iterable[np.ndarray]) -> None:
    """A logarithmic y axis if the values span more than a factor of five."""
    values = np.concatenate([np.ones(1), *curves])
    values = values[np.isfinite(values) & (values > 0)]
    if np.max(values) > 5 * np.min(values):
        axis.set_yscale("log")


def legend(figure: Figure, styles: Mapping[str, Style], shown: Iterable[str], note: str) -> None:
    """Estimators and methods below the panels, and a note on how to read them."""
    labels = [label for label in styles if label in set(shown)]
    handles = [
        Line2D([], [], color=styles[label].colour, ls=styles[label].dash, lw=2) for label in labels
    ]
    names = [plain(label_name(label)) for label in labels]
    # Inches: the line before a name, and about that many for each letter.
    widest = 0.6 + 0.08 * max(map(len, names), default=0)
    columns = max(1, min(len(labels), int(figure.get_figwidth() / widest)))
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=columns,
        title=note,
        title_fontsize=9,
    )


def save(figure: Figure, stem: Path) -> bytes:
    """Write `stem` as SVG and PNG, and return the PNG."""
    picture = io.BytesIO()
    with mpl.rc_context(SETTINGS):
        # Arranging the panels is the slow part: once is enough for both files.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(picture, format="png", dpi=DPI)
    small = _smaller(picture)
    stem.with_suffix(".png").write_bytes(small)
    return small


def _smaller(picture: io.BytesIO) -> bytes:
    """The picture with 256 colours, which lines and letters do not need more of: a third of the size."""
    out = io.BytesIO()
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256).save(out, format="png", optimize=True)
    return out.getvalue()
