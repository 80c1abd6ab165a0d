"""Whole numbers on the command line: 0.5 is refused, where the parser would make it 0."""

from typing import Annotated, Any

import cyclopts


def _whole(type_: Any, tokens: Any) -> int:
    del type_
    text = tokens[0].value
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


Whole = Annotated[int, cyclopts.Parameter(converter=_whole, n_tokens=1)]
