"""The ladder of families above mean-field: what to try next when a richer family might pay.

A full-rank Gaussian where Newton steps can solve for it, then a flow in its coordinates. In dimensions
that are too high for either, or with minibatches, a Gaussian with a few factors. Each rung contains the
one below, whose answer is its start and its floor.
"""

import equinox as eqx

from ..._random import key_of
from ...families import AbstractFamily, FullRank, LowRank, WhitenedRealNVP
from ...points import Points
from ..method import Problem, Recorder
from ..newton import MOST_DIM, suits

# Flows beyond this dimension take long to learn anything.
FLOW_DIM = 200


def ladder(problem: Problem, points: Points, recorder: Recorder) -> list[AbstractFamily]:
    """Members of the families above mean-field, the simplest first."""
    dim, kinds = problem.q.dim, []
    if problem.batch_size is None and dim <= MOST_DIM:
        full = _member(FullRank, dim, recorder)
        if suits(points, full):
            kinds = [WhitenedRealNVP] if 1 < dim <= FLOW_DIM else []
            return [full, *(_member(kind, dim, recorder) for kind in kinds)]
    return [_member(LowRank, dim, recorder)] if dim > 1 else []


def _member(kind: type[AbstractFamily], dim: int, recorder: Recorder) -> AbstractFamily:
    return eqx.filter_jit(kind.init)(dim, key=key_of(recorder.words(kind.__name__)))
