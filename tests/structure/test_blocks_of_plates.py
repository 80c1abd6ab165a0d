"""Blocks from the places of plates, for targets that need not be independent like that."""

# NumPyro types what it samples as anything like an array, which has no index and no minus.
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportArgumentType=false

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hierarchy_models import normal_groups, normal_target

import quietgrad as qg
from quietgrad.families import Arrowhead
from quietgrad.structure import Structure, blocks_of_plates, has

SIZE, RANK = 30, 2
RNG = np.random.default_rng(0)
# Four entries of a row for its two factors, with loadings that are far from orthogonal.
SEEN = np.stack([RNG.permutation(SIZE)[:4] for _ in range(SIZE)])
Y = 2.0 + RNG.normal(size=SEEN.shape)


def factorisation():
    with numpyro.plate("columns", SIZE):
        v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([RANK]).to_event(1))
    with numpyro.plate("rows", SIZE):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([RANK]).to_event(1))
        numpyro.sample(
            "y", dist.Normal(jnp.einsum("ir,isr->is", u, v[SEEN]), 0.3).to_event(1), obs=jnp.asarray(Y)
        )


def with_a_scale():
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("rows", SIZE):
        numpyro.sample("x", dist.Normal(0.0, scale))


def test_rows_and_columns_of_a_matrix_are_blocks():
    target = qg.Target.from_numpyro(factorisation)
    found = blocks_of_plates(target)
    assert (found.k, found.n, found.b) == (0, 2 * SIZE, RANK)
    assert target.unravel is not None
    places = target.unravel(jnp.arange(target.dim, dtype=float))
    rows = {tuple(row) for part in places.values() for row in np.asarray(part, int).tolist()}
    assert {tuple(row) for row in np.asarray(found.blocks).tolist()} == rows
    assert not has(target, found)


def test_a_coordinate_outside_of_all_plates_is_told():
    with pytest.raises(ValueError, match="every coordinate in one plate"):
        blocks_of_plates(qg.Target.from_numpyro(with_a_scale))


def test_a_structure_is_one_that_the_target_has_or_not():
    target = normal_target(normal_groups(12))
    assert has(target, Structure([0, 1], np.arange(2, 14)[:, None]))
    assert not has(target, Structure([], np.arange(14)[:, None]))


def test_blocks_that_are_not_independent_are_fitted_by_steps(key):
    """Factors of a row are correlated, which the mean-field family cannot have."""
    target = qg.Target.from_numpyro(factorisation)
    structure = blocks_of_plates(target)
    start = jax.jit(lambda key: Arrowhead.init(target.dim, structure=structure, key=key))
    result = qg.fit(target, start(jr.key(0)), method=qg.Auto(by_clock=False), key=key)
    assert "does not have the structure of q" in result.explain()
    # A rate for sds of one is far too large for these.
    assert "take it back" not in result.explain()
    simple = qg.fit(target, "mean-field", method=qg.Auto(by_clock=False), key=key)
    assert result.elbo > simple.elbo + 5
