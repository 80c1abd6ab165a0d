"""auto where the judge's pairs of draws meet rows of their own: the best of equals is best by chance."""

import numpy as np
import pytest

import quietgrad as qg
from quietgrad.fitting import problem_of
from quietgrad.session import Recorder
from quietgrad.session.problem import JUDGED_ROWS


@pytest.mark.parametrize("more", [0, 1])
def test_the_last_answer_is_preferred_where_rows_are_many(more, key):
    x = np.random.default_rng(0).normal(size=JUDGED_ROWS + more)
    target = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: -0.5 * (x - z[0]) ** 2, x, dim=1)
    session = Recorder(problem_of(target, "mean-field", None, key=key), key=key)
    assert (session.evaluator.rows is not None) == session.answers.prefer_last == bool(more)
