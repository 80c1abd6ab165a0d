"""The Taylor surrogate against its explicit column, and its cheaper scale parts by their means."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from literal import assert_close, bent_target, with_draws
from oracles import assert_mean
from subjects import family, target_2d

from quietgrad import families
from quietgrad.estimators import Controlled, Pathwise, estimator
from quietgrad.estimators.control_variates import TaylorColumn
from quietgrad.estimators.control_variates.control_variate import take_sample
from quietgrad.estimators.entropy import Closed
from quietgrad.estimators.surrogates import Taylor
from quietgrad.estimators.surrogates.taylor import SCALES, ExactScale
from quietgrad.families import HasDiagonalScale, HasMoments, MeanField, bases
from quietgrad.targets import Target

LOCATION_SCALE = [name for name, cls in families.REGISTRY.items() if issubclass(cls, HasMoments)]


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", LOCATION_SCALE)
def test_exact_scale_is_the_explicit_column_with_coefficient_one(name, key):
    target, q = bent_target(3), family(name, 3)
    e = q.base.sample((4, q.base_dim), q.dtype, key=key)
    made = with_draws(estimator("taylor", draws=4, scale="exact"), e)

    @eqx.filter_jit
    def both(q, e):
        estimate, _ = made.step(target, q, made.init(target, q), key=key)
        sample = take_sample(target, q, Closed(), e)
        columns = TaylorColumn().columns(None, target, q, sample, key=key)
        return ravel_pytree(estimate.grad)[0], jnp.mean(sample.phi + columns[:, :, 0], axis=0)

    assert_close(*both(q, e))


def cheap_cases():
    """Scale parts beside the exact one, and the location-scale families that they take."""
    return [
        pytest.param(scale, name, id=f"{scale}-{name}")
        for scale, part in SCALES.items()
        for name in LOCATION_SCALE
        if part is not ExactScale and part().refuses(family(name, 2), 4) is None
    ]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("scale", "name"), cheap_cases())
def test_cheap_scale_parts_are_unbiased_and_exact_for_the_location(scale, name, key):
    target, q = target_2d("curved"), family(name, 2)
    forms = [
        Pathwise(surrogate=surrogate, entropy="closed", draws=4)
        for surrogate in (None, Taylor(SCALES[scale]()), Taylor())
    ]

    def gradients(key):
        steps = [made.step(target, q, made.init(target, q), key=key)[0] for made in forms]
        plain, ours, exact = (step.grad for step in steps)
        return [jax.tree.map(jnp.subtract, made, plain) for made in (ours, exact)]

    ours, exact = jax.jit(jax.vmap(gradients))(jr.split(key, 10_000))
    assert_close(ours.loc, exact.loc)
    # Beside the estimated diagonal, a block is left alone or treated as the exact part treats it.
    leaves, _ = jax.tree.flatten_with_path(ours)
    for (path, block), wanted in zip(leaves, jax.tree.leaves(exact), strict=True):
        if block.size:
            assert_mean(block, 0.0)
        if np.any(block) and jax.tree_util.keystr(path) != ".log_std":
            assert_close(block, wanted)


@pytest.mark.parametrize("scale", SCALES)
def test_units_of_the_coordinates_change_nothing(scale, key):
    """The gradient by a log scale has no unit, that by a location has one over its coordinate's."""
    model, q = bent_target(3), family("mean-field", 3)
    made = Pathwise(surrogate=Taylor(SCALES[scale]()), entropy="closed", draws=4)

    @jax.jit
    def gradient(units):
        target = Target.from_logdensity(lambda z: model.log_density(z / units), dim=3)
        there = MeanField(loc=units * q.loc, log_std=q.log_std + jnp.log(units))
        return made.step(target, there, made.init(target, there), key=key)[0].grad

    units = jnp.array([1e-2, 3.0, 1e3])
    here, there = gradient(jnp.ones(3)), gradient(units)
    assert_close(units * there.loc, here.loc)
    assert_close(there.log_std, here.log_std)


@pytest.mark.parametrize("name", LOCATION_SCALE)
def test_a_triangular_scale_has_no_leave_one_out_diagonal(name):
    reason = SCALES["leave-one-out"]().refuses(family(name, 2), 4)
    diagonal = isinstance(family(name, 2), HasDiagonalScale)
    assert (reason is None) == diagonal
    assert "2 draws; got 1" in str(SCALES["leave-one-out"]().refuses(family(name, 2), 1))


@pytest.mark.turns(2)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", LOCATION_SCALE)
def test_hessian_products_are_counted(name, scale):
    """One for each draw; beside them dim for the exact part, rank for a low-rank family's factors."""
    q, target, part = family(name, 3), bent_target(3), SCALES[scale]()
    made = Pathwise(surrogate=Taylor(part), entropy="closed", draws=5)
    if part.refuses(q, 5) is not None:
        with pytest.raises(ValueError, match=r"use 'exact'"):
            made.init(target, q)
        return
    beside = {"exact": q.dim, "leave-one-out": q.base_dim - q.dim, "none": 0}[scale]
    step = eqx.filter_eval_shape(made.step, target, q, made.init(target, q), key=jr.key(0))
    assert step[0].cost.hessian_products == 5 + beside
    assert step[0].cost.gradients == 5


def test_estimators_without_hessians_count_none(key):
    q, target = family("mean-field", 2), bent_target(2)
    for name in ("nocv", "quadcv", "zvcv-gd"):
        made = estimator(name)
        step = eqx.filter_eval_shape(made.step, target, q, made.init(target, q), key=key)
        assert step[0].cost == (10, 0, 0)


def test_explicit_column_counts_its_hessian(key):
    q, target = family("mean-field", 2), bent_target(2)
    for source, sets in (("in-sample", 1), ("held-out", 2)):
        made = Controlled("taylor", source=source, draws=4)
        step = eqx.filter_eval_shape(made.step, target, q, made.init(target, q), key=key)
        assert step[0].cost == (4 * sets, 0, 2 * sets)


def test_large_dimensions_are_refused_unless_allowed():
    q, target = MeanField(loc=jnp.zeros(1001), log_std=jnp.zeros(1001)), bent_target(1001)
    with pytest.raises(ValueError, match="1001 Hessian products .*ExactScale\\(largest=1001\\)"):
        estimator("taylor").init(target, q)
    assert Taylor(ExactScale(largest=1001)).refuses(target, q, 4) is None


def test_a_base_without_variance_is_refused():
    """tr(H Cov z) is infinite there."""
    q = MeanField(loc=jnp.zeros(2), log_std=jnp.zeros(2), base=bases.StudentT(2.0))
    with pytest.raises(ValueError, match="no finite variance"):
        estimator("taylor").init(bent_target(2), q)
