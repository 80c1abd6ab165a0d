"""Control variates side by side: all columns, and no worse a fit than any member's."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from literal import assert_close, bent_target
from subjects import family

from quietgrad.estimators import Controlled
from quietgrad.estimators.control_variates import (
    CRITERIA,
    Ensemble,
    ExplicitLeastSquares,
    QuadraticColumn,
    SteinColumns,
    TaylorColumn,
)
from quietgrad.estimators.control_variates.control_variate import take_sample
from quietgrad.estimators.control_variates.solvers import apply
from quietgrad.estimators.entropy import Closed

MEMBERS: tuple[Any, ...] = (TaylorColumn(), QuadraticColumn(), SteinColumns())
TOGETHER: Any = Ensemble(MEMBERS)


@pytest.fixture(scope="module")
def evaluated():
    """Gradients, and the columns of each member and of all of them, on the same draws."""
    target, q = bent_target(2), family("mean-field", 2)

    @eqx.filter_jit
    def evaluate(q, e):
        sample = take_sample(target, q, Closed(), e)
        return sample.phi, [
            made.columns(made.init(target, q), target, q, sample, key=jr.key(0))
            for made in (*MEMBERS, TOGETHER)
        ]

    return evaluate(q, q.base.sample((8, 2), q.dtype, key=jr.key(3)))


def test_columns_are_those_of_the_members(evaluated):
    *members, together = evaluated[1]
    assert together.shape == (8, 4, 1 + 1 + 2)
    assert_close(together, np.concatenate(members, axis=2))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "per-dimension"])
@pytest.mark.parametrize("criterion", [c() for c in CRITERIA.values()], ids=CRITERIA)
def test_in_sample_the_ensemble_does_at_least_as_well(criterion, shared, evaluated):
    phi, columns = evaluated
    fits = [ExplicitLeastSquares().solve(criterion, phi, c, shared=shared) for c in columns]
    *members, together = [
        float(criterion.objective(phi + apply(c, beta))) for c, beta in zip(columns, fits, strict=True)
    ]
    # A tenth of a percent of what is left is far above rounding and far below what a member adds.
    assert together < 0.999 * min(members)


def test_members_learn_by_themselves(key):
    target, q = bent_target(2), family("mean-field", 2)
    learner = QuadraticColumn()
    made = Ensemble((SteinColumns(), learner))

    @eqx.filter_jit
    def update(q, e):
        sample = take_sample(target, q, Closed(), e)
        together = made.update(made.init(target, q), target, q, sample, key=key)
        return together[1], learner.update(learner.init(target, q), target, q, sample, key=key)

    together, alone = update(q, q.base.sample((4, 2), q.dtype, key=key))
    assert_close(together.v, alone.v)
    assert jnp.any(together.v.linear != learner.init(target, q).v.linear)


def test_objections_and_costs_are_those_of_the_members():
    target, flow, q = bent_target(2), family("real-nvp", 2), family("mean-field", 2)
    made = Ensemble(MEMBERS)
    assert made.refuses(target, q) is None
    assert made.refuses(target, flow) == TaylorColumn().refuses(target, flow)
    with pytest.raises(ValueError, match="no closed-form mean"):
        Controlled(made).init(target, flow)
    assert made.hessian_products(q) == TaylorColumn().hessian_products(q) == 2


def test_an_empty_ensemble_is_a_mistake():
    with pytest.raises(ValueError, match="at least one control variate"):
        Ensemble(())
