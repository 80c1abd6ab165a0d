"""Short names of estimators, for people."""

from .estimator import AbstractEstimator
from .pathwise import Pathwise
from .weights import Uniform


def name_of(estimator: AbstractEstimator) -> str:
    """The parts of a pathwise estimator and its draws; the class of another."""
    if not isinstance(estimator, Pathwise):
        return type(estimator).__name__
    parts = [estimator.sampler, estimator.entropy]
    parts += [] if isinstance(estimator.weights, Uniform) else [estimator.weights]
    parts += [] if estimator.surrogate is None else [estimator.surrogate]
    return f"{' + '.join(type(part).__name__ for part in parts)} with {estimator.draws} draws"
