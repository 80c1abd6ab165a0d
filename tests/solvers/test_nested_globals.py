"""When the globals of a hierarchy get a flow, and when nothing is left for one to gain."""

import numpy as np
import pytest
from hierarchy_models import normal_groups, normal_target
from sessions import session_of

from quietgrad.families import FullRank, Hierarchical
from quietgrad.families.conditional import NestedLaplace
from quietgrad.solvers import NestedGlobals
from quietgrad.solvers.few_dimensions import Gaussian
from quietgrad.solvers.nested import NestedState
from quietgrad.structure import Structure

GROUPS = 3


@pytest.mark.parametrize(
    ("settings", "log_weights"),
    [
        # A flow was fitted, or the Gaussian is right at every draw: not even if any gain is worth one.
        ({"worth_flow": 0.0}, np.zeros(4)),
        ({"worth_flow": 0.0}, np.full(4, 1e9)),
        # Weights of numbers of this size are rounded by more than they differ.
        ({"worth_flow": 0.0}, 1e9 + 1e-7 * np.array([1.0, -1.0, 1.0, -1.0])),
        ({"worth_flow": 1.0}, np.array([0.5, -0.5, 0.5, -0.5])),
        ({"most_flow": 1}, np.array([5.0, -5.0, 5.0, -5.0])),
    ],
)
def test_there_is_no_flow_where_it_has_nothing_to_gain(settings, log_weights):
    structure = Structure([0, 1], np.arange(2, GROUPS + 2)[:, None], "arrowhead")
    target = normal_target(normal_groups(GROUPS))
    of_globals = FullRank.of_host(np.zeros(2), np.eye(2), np.dtype(float))
    q = Hierarchical(
        of_globals=of_globals, of_locals=NestedLaplace.begin(target, structure, np.zeros((1, GROUPS)))
    )
    none = np.zeros((4, 2))
    found = Gaussian(np.zeros(2), np.eye(2), none, log_weights, none, 0.0)
    solver = NestedGlobals(structure=structure, **settings)
    step = solver.step(session_of(target, q), NestedState(q, found, 2), None)
    assert step.end == "stationary"
    assert step.members == ()
