"""PyMC's transforms: proper posteriors are not called improper, flat priors are, in both precisions."""

import numpy as np
import pymc as pm
import pytest
from looking import findings, precision

import quietgrad as qg

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # PyTensor asks for double precision, and gets what there is.
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]
NOISE = np.random.default_rng(0)
Y, Z = NOISE.normal(size=30), NOISE.normal(size=(30, 2))


def simplex():
    p = pm.Dirichlet("p", 0.1 * np.ones(5))
    pm.Categorical("y", p, observed=NOISE.integers(0, 3, 50))


def truncated():
    """PyTensor has no JAX program for the normal's tail."""
    mean, std = pm.Normal("mean", 0, 10), pm.HalfNormal("std", 1)
    pm.Truncated("y", pm.Logistic.dist(mean, std), lower=0, observed=np.abs(Y))


def censored():
    mean, std = pm.Normal("mean", 0, 5), pm.HalfCauchy("std", 1)
    pm.Censored("y", pm.Logistic.dist(mean, std), lower=None, upper=1.0, observed=np.minimum(Y, 1.0))


def ordered():
    ordered = pm.distributions.transforms.ordered
    mean = pm.Normal("mean", 0, 3, shape=2, transform=ordered, initval=np.array([-1.0, 1.0]))
    weight = pm.Dirichlet("weight", np.ones(2))
    pm.NormalMixture("y", weight, mean, pm.HalfNormal("std", 1), observed=Y)


def cholesky():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=1.0, sd_dist=pm.Exponential.dist(1.0))
    pm.MvNormal("y", np.zeros(2), chol=chol, observed=Z)


def bounded():
    low, share = pm.Uniform("low", -2, 1), pm.Beta("share", 0.2, 0.2)
    angle, precision = pm.VonMises("angle", 0, 1), pm.Gamma("precision", 0.001, 0.001)
    pm.Normal("y", low + share + 0.1 * angle, tau=precision, observed=Y)


def zero_inflated():
    pm.ZeroInflatedPoisson(
        "y", pm.Beta("psi", 1, 1), pm.HalfCauchy("rate", 5), observed=NOISE.poisson(1, 30)
    )


def flat():
    pm.Flat("a")
    pm.Normal("y", pm.Normal("b", 0, 1), 1.0, observed=Y)


def half_flat():
    pm.HalfFlat("a")
    pm.Normal("y", pm.Normal("b", 0, 1), 1.0, observed=Y)


def equal_predictors():
    pm.Normal("y", (pm.Flat("a") + pm.Flat("b")) * Z[:, 0], 1.0, observed=Y)


PROPER = (simplex, truncated, censored, ordered, cholesky, bounded, zero_inflated)
IMPROPER = (flat, half_flat, equal_predictors)
in_both = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def target_of(build):
    with pm.Model() as model:
        build()
    return qg.Target.from_pymc(model)


@in_both
@pytest.mark.parametrize("build", PROPER, ids=lambda build: build.__name__)
def test_no_proper_posterior_is_accused(build, dtype):
    with precision(dtype):
        for found, tails in findings(target_of(build), dtype):
            assert found is None
            assert tails == []


@in_both
@pytest.mark.parametrize("build", IMPROPER, ids=lambda build: build.__name__)
def test_every_improper_posterior_is_found(build, dtype):
    with precision(dtype):
        for found, _ in findings(target_of(build), dtype):
            assert found is not None
            assert "improper" in found.hint
