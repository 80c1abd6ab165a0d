"""A new family is one file and one line: all that is written for it stands here, and everything runs.

The family is a flow of one triangular affine layer, z = shift + C e.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from family_promises import PROMISES, SMALL, promises_of
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key
from subjects import accepted, family, target_2d

from quietgrad import estimators
from quietgrad.families import AbstractFamily, AbstractFlow, MeanField
from quietgrad.families.bases import AbstractBase, Normal
from quietgrad.families.flow import AbstractLayer

NAME = "triangular-flow"


class Triangular(AbstractLayer):
    """u -> shift + C u, with C the lower triangle of `raw` and exp of its diagonal."""

    shift: Float[Array, " dim"]
    raw: Float[Array, "dim dim"]

    def matrix(self):
        return jnp.tril(self.raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(self.raw)))

    def forward(self, u):
        return self.shift + self.matrix() @ u, jnp.trace(self.raw)

    def forward_with_score(self, u, score):
        return *self.forward(u), solve_triangular(self.matrix(), score, lower=True, trans="T")

    def inverse(self, v):
        return solve_triangular(self.matrix(), v - self.shift, lower=True)


class TriangularFlow(AbstractFlow):
    """One triangular layer."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], base: AbstractBase = Normal()) -> "TriangularFlow":
        loc, log_std = 0.5 * jr.normal(key, (2, dim))
        return cls((Triangular(loc, jnp.diag(log_std)),), dim, base)

    def _start_from(self, other, *, key):
        return TriangularFlow((Triangular(other.loc, jnp.diag(other.log_std)),), self.size, self.base)


@pytest.fixture(autouse=True)
def registered(register):
    """The one line."""
    register(NAME, TriangularFlow)


def test_it_keeps_the_promises_of_a_family():
    kept = [PROMISES[promise].check(case) for case, promise in promises_of(NAME, largest=SMALL)]
    assert len(kept) > 30


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", estimators.REGISTRY)
def test_estimators_take_it_or_say_why_not(name):
    make = estimators.REGISTRY[name]
    estimator, target, q = make(**accepted(make, draws=4)), target_2d("curved"), family(NAME, 2)
    reason = estimator.refuses(target, q)
    if reason is not None:
        assert "TriangularFlow" in reason
        return
    estimate, _ = eqx.filter_jit(estimator.step)(target, q, estimator.init(target, q), key=jr.key(0))
    assert jax.tree.structure(estimate.grad) == jax.tree.structure(eqx.filter(q, eqx.is_inexact_array))
    assert np.all(np.isfinite(ravel_pytree((estimate.grad, estimate.elbo))[0]))


def test_it_starts_from_a_mean_field_solution(key):
    solution = family("mean-field", 3)
    start = family(NAME, 3).start_from(solution, key=key)
    assert isinstance(start, TriangularFlow)
    z = solution.sample(key, 10)
    np.testing.assert_allclose(start.log_prob(z), solution.log_prob(z), rtol=1e-12)
