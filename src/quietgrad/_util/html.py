"""HTML for notebooks: elements whose text is escaped, styled inline so that they bring their own looks.

Colours are those of the page around (`currentColor`, opacity) or of medium lightness, which can be
read on light and on dark ground. There is no script.
"""

from html import escape
from typing import Any

GREEN, AMBER, RED, BLUE = "#2e9e5b", "#c98a00", "#d9453d", "#3a86c8"


class Html(str):
    """Text that is HTML already; any other text is escaped."""

    __slots__ = ()


def element(tag: str, *content: Any, **attributes: Any) -> Html:
    """An element; None is left out, and names of attributes have dashes for underscores."""
    given = {name.rstrip("_").replace("_", "-"): v for name, v in attributes.items() if v is not None}
    words = "".join(f' {name}="{escape(str(value))}"' for name, value in given.items())
    return Html(f"<{tag}{words}>{joined(*content)}</{tag}>")


def joined(*content: Any) -> Html:
    """Pieces of content one after another; None is left out."""
    parts = (
        part if isinstance(part, Html) else escape(str(part)) for part in content if part is not None
    )
    return Html("".join(parts))


def bullets(lines: Any) -> Html:
    """An unordered list."""
    items = [element("li", line) for line in lines]
    return element("ul", *items, style="margin:.2em 0 .6em;padding-left:1.4em")


def badge(text: str, colour: str) -> Html:
    """A short statement that is seen at once."""
    style = f"border:2px solid {colour};border-radius:4px;padding:1px 8px;font-weight:600"
    return element("span", text, style=style)


def folded(summary: str, *content: Any) -> Html:
    """Content that is shown when its summary is clicked, which needs no script."""
    return element(
        "details", element("summary", summary, style="cursor:pointer"), *content, style="margin:.4em 0"
    )
