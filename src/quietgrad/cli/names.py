"""Names and whole numbers that options accept; help and completion do not wait for the registries."""

from typing import Annotated, Any, Literal, get_args

import cyclopts

Family = Literal[
    "auto",
    "mean-field",
    "low-rank",
    "full-rank",
    "arrowhead",
    "chain",
    "sparse",
    "hierarchical",
    "mixture",
    "real-nvp",
    "real-nvp-affine",
    "real-nvp-whitened",
    "autoregressive-flow",
    "spline-flow",
    "semi-implicit",
]
Method = Literal["auto", "sgd", "saa", "bam"]
Estimator = Literal[
    "auto",
    "nocv",
    "stl",
    "antithetic",
    "rqmc",
    "quiet",
    "quiet-stein",
    "zvcv-gd",
    "zvcv",
    "quadcv",
    "quadcv-fast",
    "taylor",
    "joint",
    "ensemble",
    "score",
    "score-loo",
    "score-stein",
    "sivi",
    "uivi",
    "uivi-stein",
    "ksivi",
    "zvcv-gd-literal",
    "quadcv-literal",
]


def _whole(type_: Any, tokens: Any) -> int:
    """0.5 is refused, where the parser would make it 0."""
    del type_
    text = tokens[0].value
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


Whole = Annotated[int, cyclopts.Parameter(converter=_whole, n_tokens=1)]


def _family(type_: Any, tokens: Any) -> str:
    """A name of another library gets the same advice as in `qg.fit`."""
    del type_
    text = tokens[0].value
    if text not in get_args(Family):
        # The registry imports jax, which correct names do not wait for.
        from ..families import ANY_FAMILY, named

        named(text, ANY_FAMILY)
    return text


FamilyName = Annotated[Family, cyclopts.Parameter(converter=_family, n_tokens=1)]
