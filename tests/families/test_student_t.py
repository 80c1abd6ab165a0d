"""The Student-t base is SciPy's, with tails as heavy as they come."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from oracles import assert_same

import quietgrad as qg


# Without a mean, without a variance, and with both. SciPy's entropy at one half is a quadrature.
@pytest.mark.parametrize("df", [0.5, 1.0, 2.0, 2.5])
def test_any_positive_degrees_of_freedom_make_a_base(df):
    base, theirs = qg.StudentT(df=df), scipy.stats.t(df)
    e, u = np.array([-1e4, -3.0, 0.0, 0.1, 50.0]), np.array([1e-3, 0.3, 0.5, 0.99])
    assert_same(base.log_prob(jnp.asarray(e)), theirs.logpdf(e), operations=100)
    assert_same(base.quantile(jnp.asarray(u)), theirs.ppf(u), operations=1e4)
    assert base.moments == df
    assert base.variance == pytest.approx(theirs.var() if df > 2 else np.inf)
    assert base.entropy == pytest.approx(float(theirs.entropy()), rel=1e-6)


@pytest.mark.parametrize("df", [0.0, -1.0, float("nan")])
def test_other_degrees_of_freedom_are_refused(df):
    with pytest.raises(ValueError, match="df must be positive"):
        qg.StudentT(df=df)
