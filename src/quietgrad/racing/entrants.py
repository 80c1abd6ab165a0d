"""Who runs in a race: methods, estimators, or names of either."""

import optax

from ..estimators import REGISTRY as ESTIMATORS
from ..estimators import AbstractEstimator, Pathwise, estimator
from ..methods import REGISTRY as METHODS
from ..methods import AbstractMethod, Sgd

Entrant = AbstractMethod | AbstractEstimator | str


def entrants_for(*, full_batch: bool) -> dict[str, Entrant]:
    """The default field: the paper's estimators and ours, and the methods that need no tuning."""
    field: dict[str, Entrant] = {
        "nocv 10 draws": estimator("nocv", draws=10),
        "nocv 50 draws": estimator("nocv", draws=50),
        "zvcv-gd 10 draws": estimator("zvcv-gd", draws=10),
        "quadcv 10 draws": estimator("quadcv", draws=10),
        "stl 10 draws": estimator("stl", draws=10),
        "quiet": estimator("quiet"),
        "rqmc + stl 8 draws": Pathwise(sampler="rqmc", entropy="stl", draws=8),
    }
    return field | {"auto": "auto"} | ({"saa": "saa"} if full_batch else {})


def method_of(given: Entrant, learning_rate: float) -> AbstractMethod:
    """The method that an entrant is; estimators take Adam steps at this rate."""
    if isinstance(given, AbstractMethod):
        return given
    if isinstance(given, str) and given in METHODS:
        return METHODS[given]()
    if isinstance(given, str) and given not in ESTIMATORS:
        known = ", ".join([*METHODS, *ESTIMATORS])
        raise ValueError(f"unknown entrant {given!r}; known methods and estimators: {known}")
    return Sgd(given, optax.adam(learning_rate))
