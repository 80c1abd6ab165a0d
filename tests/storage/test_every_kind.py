"""Nothing that the package can make is left out of a file: every family, estimator and state of one."""

import dataclasses
import importlib
import inspect
import pkgutil

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from structured_members import away
from subjects import accepted

import quietgrad as qg
from quietgrad import estimators, families
from quietgrad.adapters import flowjax
from quietgrad.families import ParticleMixture, WithHyperparameters, WithHyperparametersAndEntropy
from quietgrad.families.bases import Normal
from quietgrad.families.by_site import BySite, BySiteWithEntropy
from quietgrad.families.stored import StoredFamily
from quietgrad.families.structured import Chain
from quietgrad.structure import Structure

KEY = jr.key(6)


def by_site():
    """A chain of two and a flow, in each other's gaps."""
    structure = Structure([], [[0], [1]]).with_kind("chain")
    parts = (
        Chain.init(2, key=KEY, structure=structure),
        families.AffineRealNVP.init(2, key=KEY),
    )
    return BySite(parts=parts, places=(((0, 1), (3, 4)), ((1, 3),)))


# What no name stands for, and members of what a name makes the simplest case of.
MADE = {
    "curved": lambda: families.Curved.init(3, key=KEY, order=(2, 0, 1)),
    "triangular": lambda: families.Triangular.init(3, key=KEY),
    "mixture-of-three": lambda: families.Mixture.init(3, key=KEY, components=3),
    "particles": lambda: ParticleMixture.init(3, key=KEY, particles=4, widths=(5,)),
    "semi-implicit": lambda: families.SemiImplicit.init(3, key=KEY, mixing=2, widths=(4,)),
    "hierarchy": lambda: families.Hierarchical.init(
        5, key=KEY, structure=Structure([0], [[1, 2], [3, 4]])
    ),
    "by-site": by_site,
    "by-site-with-entropy": lambda: BySiteWithEntropy(
        parts=(qg.MeanField.init(1, key=KEY), qg.FullRank.init(2, key=KEY)),
        places=(((1, 2),), ((0, 1), (2, 3))),
    ),
    "points-beside-it": lambda: WithHyperparameters(
        of_z=families.RealNVP.init(2, key=KEY),
        hyperparameters={"a": jnp.ones(2), "b": jnp.zeros(())},
        base=Normal(),
    ),
    "points-beside-a-gaussian": lambda: WithHyperparametersAndEntropy(
        of_z=qg.LowRank.init(3, rank=1, key=KEY), hyperparameters=jnp.arange(2.0), base=Normal()
    ),
}
# Those that `test_saved_results` has under their own names.
ELSEWHERE = {flowjax.FlowjaxFlow, flowjax.CouplingFlow, flowjax.SplineFlow, flowjax.AutoregressiveFlow}


@pytest.fixture(scope="module")
def fitted():
    """A fit, in which other families and estimators are put."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), 3)
    return qg.fit(target, method=qg.Sgd(steps=10), key=jr.key(5))


def bits(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_array_like(leaf)]
    return [(np.asarray(leaf).dtype, np.shape(leaf), np.asarray(leaf).tobytes()) for leaf in leaves]


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", MADE)
def test_what_has_no_name_comes_back_bit_for_bit(name, fitted, tmp_path):
    q = away(MADE[name]())
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), q.dim)
    result = eqx.tree_at(lambda r: (r.q, r.target), fitted, (q, target))
    found = qg.load(result.save(tmp_path / "fit.quietgrad")).q
    assert type(found) is type(q)
    # Static fields, such as orders, places and structures, are part of it.
    assert jax.tree.structure(found) == jax.tree.structure(q)
    assert bits(found) == bits(q)
    assert bits(found.sample(jr.key(9), 3)) == bits(q.sample(jr.key(9), 3))


def concrete():
    """Every family that can be made, wherever in the package it is."""
    for module in pkgutil.walk_packages(qg.__path__, "quietgrad."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    below, found = [families.AbstractFamily], set()
    while below:
        made = below.pop()
        below += made.__subclasses__()
        if not inspect.isabstract(made) and not made.__name__.startswith(("Abstract", "_")):
            found.add(made)
    return {made for made in found if made.__module__.startswith("quietgrad.")}


def test_no_family_is_left_out():
    here = {type(make()) for make in MADE.values()}
    assert concrete() <= here | ELSEWHERE | {StoredFamily} | set(families.REGISTRY.values())


@pytest.mark.parametrize("name", estimators.REGISTRY)
def test_every_estimator_comes_back_with_its_state(name, fitted, tmp_path):
    make = estimators.REGISTRY[name]
    made = make(**accepted(make, draws=4))
    target = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: x @ z, jnp.ones((4, 3)), dim=3)
    q = MADE["semi-implicit"]() if made.refuses(target, fitted.q) else fitted.q
    state = away(made.init(target, q))
    result = dataclasses.replace(fitted, estimator=made, estimator_state=state)
    found = qg.load(result.save(tmp_path / "fit.quietgrad"))
    assert jax.tree.structure(found.estimator) == jax.tree.structure(made)
    assert jax.tree.structure(found.estimator_state) == jax.tree.structure(state)
    assert bits((found.estimator, found.estimator_state)) == bits((made, state))
