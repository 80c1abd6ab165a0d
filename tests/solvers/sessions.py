"""A session for tests that drive a solver by themselves."""

import jax.random as jr

from quietgrad.evaluation.points import Points
from quietgrad.session import Problem, Recorder


def session_of(target, q, *, seed=0, batch_size=None):
    """A session with a host program, as methods have one."""
    session = Recorder(Problem(target, q, batch_size), key=jr.key(seed))
    session.use_points(Points(target, q.dtype))
    return session
