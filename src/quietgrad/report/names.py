"""How tasks, families, estimators and methods are called and drawn, in figures and on the page.

The paper's three estimators keep its colours (red, blue, green), in shades that readers with a colour
vision deficiency can tell apart; line styles differ as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..study.records import Record

TASKS = {
    "a1a": "a1a, logistic regression",
    "frisk": "frisk, hierarchical Poisson",
    "redwine-mini": "redwine, BNN, mini-batch",
    "redwine": "redwine, BNN, full batch",
    "breast-cancer": "breast cancer, logistic regression",
    "counts": "counts, hierarchical Poisson",
    "diabetes-mini": "diabetes, BNN, mini-batch",
    "diabetes": "diabetes, BNN, full batch",
}
# The estimators that the others are compared with.
BASELINES = ("nocv", "zvcv-gd", "quadcv")
SIMULATED = frozenset({"counts"})
FAMILIES = {
    "mean-field": "Mean-field Gaussian",
    "low-rank": "Rank-5 Gaussian",
    "full-rank": "Full-rank Gaussian",
    "arrowhead": "Arrowhead Gaussian",
    "chain": "Chain Gaussian",
    "sparse": "Gaussian with a sparse root",
    "hierarchical": "Hierarchy, globals first",
    "mixture": "Mixture of Gaussians",
    "real-nvp": "Real NVP",
    "real-nvp-affine": "Real NVP with shift and scale",
    "real-nvp-whitened": "Real NVP, whitened",
    "autoregressive-flow": "Autoregressive flow",
    "spline-flow": "Spline couplings",
    "semi-implicit": "Semi-implicit",
}
LABELS = {
    "nocv": "NoCV",
    "zvcv-gd": "ZVCV-GD",
    "quadcv": "QuadCV",
    "zvcv-gd order 2": "ZVCV-GD, second order",
    "zvcv-gd 20 steps": "ZVCV-GD, 20 steps",
    "zvcv-gd to convergence": "ZVCV-GD, to convergence",
    "stl": "STL",
    "quadcv-fast": "QuadCV, fast",
    "nocv, decaying": "NoCV, falling step",
    "quadcv, decaying": "QuadCV, falling step",
    "quiet, decaying": "quiet, falling step",
    "nocv 50, decaying": "NoCV, 50 draws, falling step",
    "quadcv 50, decaying": "QuadCV, 50 draws, falling step",
    "nocv closed": "NoCV, closed entropy",
    "nocv stl": "NoCV, STL",
    "quadcv closed": "QuadCV, closed entropy",
    "quadcv stl": "QuadCV, STL",
    **{f"nocv, rate {rate}": f"NoCV, rate {rate}" for rate in ("0.1", "0.01", "0.001", "0.0001")},
}


@dataclass(frozen=True)
class Style:
    """Colour and dash pattern of a line; `dash` is matplotlib's, `plotly` the nearest of plotly's."""

    colour: str
    dash: str | tuple[int, tuple[int, ...]]
    plotly: str


_SOLID, _DASHED, _DOTTED, _MIXED = "solid", (0, (5, 2)), (0, (1, 1)), (0, (6, 2, 1, 2))
STYLES = {
    "nocv": Style("#d1372c", _SOLID, "solid"),
    "zvcv-gd": Style("#0072b2", _DASHED, "dash"),
    "quadcv": Style("#009e73", _MIXED, "dashdot"),
    "auto": Style("#e69f00", _SOLID, "solid"),
    "saa": Style("#56b4e9", _DASHED, "dash"),
    "quiet": Style("#7b3fa0", _DOTTED, "dot"),
    "quiet, 2 draws": Style("#7b3fa0", _SOLID, "solid"),
    "rqmc": Style("#8c564b", _MIXED, "dashdot"),
    "quadcv-fast": Style("#00523c", _DOTTED, "dot"),
    "nocv, decaying": Style("#d1372c", _DASHED, "dash"),
    "quiet, decaying": Style("#7b3fa0", _DASHED, "dash"),
    "quiet-stein": Style("#c05b9b", _DASHED, "dash"),
    "stl": Style("#a6611a", _DOTTED, "dot"),
    "zvcv-gd order 2": Style("#cc79a7", _MIXED, "dashdot"),
    "zvcv-gd 20 steps": Style("#b8860b", _SOLID, "solid"),
    "zvcv-gd to convergence": Style("#5a5a5a", _DOTTED, "dot"),
}
_SPARE = [
    Style(colour, dash, plotly)
    for dash, plotly in ((_DOTTED, "dot"), (_DASHED, "dash"), (_MIXED, "dashdot"), (_SOLID, "solid"))
    for colour in ("#999933", "#882255", "#44aa99", "#cc79a7")
]


def task_name(task: str) -> str:
    """What a task is called above a panel."""
    return TASKS.get(task, task)


def family_name(family: str) -> str:
    """What a family is called in a title."""
    return FAMILIES.get(family, family)


def label_name(label: str) -> str:
    """What an estimator or a method is called in a legend."""
    return LABELS.get(label, label)


def styles(records: Iterable[Record]) -> dict[str, Style]:
    """A style for every label of a study, the same in all its figures; the paper's order first."""
    present = dict.fromkeys(record.cell.label for record in records)
    known = [label for label in STYLES if label in present]
    others = sorted(label for label in present if label not in STYLES)
    spare = {label: _SPARE[place % len(_SPARE)] for place, label in enumerate(others)}
    return {label: STYLES.get(label) or spare[label] for label in (*known, *others)}


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names without repeats: the known ones in their order, then the others as they come."""
    present = list(dict.fromkeys(names))
    first = [name for name in known if name in present]
    return first + [name for name in present if name not in first]
