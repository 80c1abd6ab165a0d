"""Families on the command line: a name of another library gets the same advice as in `qg.fit`."""

from typing import Annotated, Any, get_args

import cyclopts

from .names import Family


def _family(type_: Any, tokens: Any) -> str:
    del type_
    text = tokens[0].value
    if text not in get_args(Family):
        # The registry imports jax, which correct names do not wait for.
        from ..families import ANY_FAMILY, named

        named(text, ANY_FAMILY)
    return text


FamilyName = Annotated[Family, cyclopts.Parameter(converter=_family, n_tokens=1)]
