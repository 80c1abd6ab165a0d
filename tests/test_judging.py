"""The judge: pairs that cancel, bad draws that are counted, and the spread of single draws."""

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.judging import PAIRS, Judge

SEED = jnp.asarray([1, 2], jnp.uint32)
Q = qg.MeanField(jnp.asarray([1.5, -2.0]), jnp.asarray([0.1, -0.3]))


def judge(fn, pairs=PAIRS):
    return Judge(qg.Target.from_logdensity(fn, dim=2), pairs=pairs, seed=SEED)


def test_pairs_cancel_whatever_is_odd():
    """The mean of the points is the location, and a slope leaves no trace in the ELBO."""
    flat, sloped = (judge(lambda z, a=a: a * jnp.sum(z)).terms(Q) for a in (0.0, 3.0))
    np.testing.assert_allclose(flat.mean, Q.loc, rtol=1e-12)
    moved = 3.0 * float(jnp.sum(Q.loc))
    # Rounding of sums of numbers of the size of the slope's share.
    np.testing.assert_allclose(sloped.values - flat.values, moved, rtol=1e-12)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_what_is_not_finite_is_counted_draw_by_draw(bad):
    """Half of the draws are on the bad side of the mean: one of each pair, so no term is finite."""
    terms = judge(lambda z: jnp.where(z[0] > 1.5, bad, 0.0)).terms(Q)
    assert terms.bad == PAIRS
    assert not np.any(np.isfinite(terms.values))
    assert np.isnan(terms.error)


def test_the_variance_is_that_of_all_single_draws():
    """Both draws of a pair have the same value where all is even, so pairs show single draws."""
    terms = judge(lambda z: -2.0 * jnp.sum((z - Q.loc) ** 2), pairs=3 * PAIRS).terms(Q)
    assert terms.values.size == 3 * PAIRS
    np.testing.assert_allclose(terms.variance, np.var(terms.values), rtol=1e-12)
    assert terms.gap == terms.variance / 2
