"""A session for tests that drive a solver by themselves."""

import jax.random as jr

from quietgrad.evaluation.points import Points
from quietgrad.session import Problem, Recorder


class Counted(Points):
    """Counts what Hessians cost: their draws times the dimension."""

    spent = 0

    def curvature(self, z, basis):
        """One product with each column of the basis at each draw."""
        self.spent += z.shape[0] * basis.shape[1]
        return super().curvature(z, basis)


def session_of(target, q, *, seed=0, batch_size=None):
    """A session with a host program, as methods have one."""
    session = Recorder(Problem(target, q, batch_size), key=jr.key(seed))
    session.use_points(Points(target, q.dtype))
    return session
