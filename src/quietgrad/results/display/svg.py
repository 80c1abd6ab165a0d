"""The curve of a fit as inline SVG, drawn with the colours of the page around it."""

import numpy as np

from ..._util.html import AMBER, BLUE, Html, element
from .curve import Curve, ticks

WIDTH, HEIGHT = 460.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 74.0, 10.0, 10.0, 36.0
# Marks on the curve only as long as they can be told apart.
MOST_MARKS = 60


def svg(curve: Curve) -> Html:
    """ELBO against seconds, with the seconds of compilation shaded."""
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(seconds: float) -> float:
        return LEFT + inner_width * seconds / max(curve.total, 1e-9)

    def y(elbo: float) -> float:
        return TOP + inner_height * (curve.top - elbo) / (curve.top - curve.bottom)

    # Far outside numbers would be long and mean nothing.
    clipped = np.maximum(curve.elbo, curve.bottom - 10 * (curve.top - curve.bottom))
    places = [(x(s), y(v)) for s, v in zip(curve.seconds, clipped, strict=True)]
    shades = [
        element(
            "rect",
            x=f"{x(a):.1f}",
            y=TOP,
            width=f"{x(b) - x(a):.1f}",
            height=inner_height,
            fill=AMBER,
            fill_opacity="0.18",
        )
        for a, b in curve.compiling
    ]
    line = element(
        "polyline",
        points=" ".join(f"{a:.1f},{b:.1f}" for a, b in places),
        fill="none",
        stroke=BLUE,
        stroke_width="2",
        stroke_linejoin="round",
    )
    marks = [element("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r="2.5", fill=BLUE) for a, b in places]
    inside = element(
        "svg",
        *shades,
        line,
        *(marks if len(marks) <= MOST_MARKS else ()),
        x="0",
        y=TOP,
        width=WIDTH,
        height=inner_height,
        viewBox=f"0 {TOP} {WIDTH} {inner_height}",
    )
    axes = [
        *(_tick(LEFT - 6, y(v) + 4, v, anchor="end") for v in ticks(curve.bottom, curve.top, 4)),
        *(_tick(x(s), HEIGHT - BOTTOM + 15, s, anchor="middle") for s in ticks(0.0, curve.total)),
        element(
            "path",
            d=f"M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}",
            fill="none",
            stroke="currentColor",
            stroke_opacity="0.5",
        ),
        _text(LEFT + inner_width / 2, HEIGHT - 4, "seconds since the call", anchor="middle"),
        _text(LEFT + 6, TOP + 12, "ELBO, nats", anchor="start"),
    ]
    if curve.compiling:
        axes.append(_text(WIDTH - RIGHT, HEIGHT - 4, "▮ compiling", anchor="end", fill=AMBER))
    return element(
        "svg",
        element("title", "ELBO against seconds"),
        inside,
        *axes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        role="img",
        style="max-width:100%;font:11px sans-serif",
    )


def _tick(x: float, y: float, value: float, *, anchor: str) -> Html:
    return _text(x, y, f"{value:,.10g}", anchor=anchor)


def _text(x: float, y: float, words: str, *, anchor: str, fill: str = "currentColor") -> Html:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill=fill)
