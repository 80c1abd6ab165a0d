"""Chains of NumPyro and PyMC models, in the forms users have them in, against known posteriors."""

import arviz_base
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS
from numpyro_models import CASES
from test_pymc import MODELS

import quietgrad as qg

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
Y = np.random.default_rng(5).normal(1.0, 2.0, size=25)
# Precision of the data ~ Gamma(3, 2), mean known to be one: Gamma(3 + n/2, 2 + sum (y - 1)^2 / 2).
SHAPE, RATE = 3 + Y.size / 2, 2 + np.sum((Y - 1) ** 2) / 2


def model(y):
    precision = numpyro.sample("precision", dist.Gamma(3.0, 2.0))
    numpyro.deterministic("std", precision**-0.5)
    numpyro.sample("y", dist.Normal(1.0, precision**-0.5), obs=y)


@pytest.fixture(scope="module")
def chains():
    mcmc = MCMC(
        NUTS(model),
        num_warmup=200,
        num_samples=100,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jr.key(0), Y)
    return mcmc


def forms(mcmc):
    """The same draws as users have them."""
    by_name = mcmc.get_samples(group_by_chain=True)
    points = np.log(np.asarray(by_name["precision"]))[:, :, None]
    return {
        "MCMC": mcmc,
        "ArviZ": arviz_base.from_numpyro(mcmc),
        "posterior": arviz_base.from_numpyro(mcmc).posterior.to_dataset(),
        "dict": by_name,
        "points": points,
    }


def test_every_form_gives_the_same_and_the_right_answer(chains):
    target = qg.Target.from_numpyro(model, Y)
    found = {name: qg.posterior_expectations(target, draws) for name, draws in forms(chains).items()}
    first = found["MCMC"]
    for other in found.values():
        np.testing.assert_allclose(other.mean["precision"], first.mean["precision"], rtol=1e-9)
    assert set(first.mean) == {"precision", "std"}
    off = (first.mean["precision"] - SHAPE / RATE) / first.error["precision"]
    assert abs(off) < 5
    assert abs(first.std["precision"] - np.sqrt(SHAPE) / RATE) < 5 * first.std_error["precision"]
    assert first.gain["precision"] > 30


def test_a_single_chain_needs_no_axis(chains):
    target = qg.Target.from_numpyro(model, Y)
    one = {name: np.asarray(x)[0] for name, x in chains.get_samples(group_by_chain=True).items()}
    found = qg.posterior_expectations(target, one)
    assert (found.chains, found.draws) == (1, 100)


def test_functions_take_a_draw_on_the_models_scale(chains):
    target = qg.Target.from_numpyro(model, Y)
    found = qg.posterior_expectations(target, chains, {"variance": lambda v: 1 / v["precision"]})
    # The mean of an inverse gamma.
    assert abs(found.mean["variance"] - RATE / (SHAPE - 1)) < 5 * found.error["variance"]
    assert found.gain["variance"] > 30


def test_pymc_draws_by_arviz():
    rng = np.random.default_rng(6)
    with pm.Model(coords={"kind": ["a", "b"]}) as two:
        rate = pm.Gamma("rate", 2.0, 1.0, dims="kind")
        pm.Poisson("count", rate, observed=[3, 8])
    # The posterior is known, so that its draws can be had without waiting for a sampler.
    shape = np.array([5.0, 10.0])
    tree = arviz_base.from_dict({"posterior": {"rate": rng.gamma(shape, 0.5, size=(2, 200, 2))}})
    found = qg.posterior_expectations(qg.Target.from_pymc(two), tree)
    assert np.all(np.abs(found.mean["rate"] - shape / 2) < 5 * found.error["rate"])
    assert np.all(found.gain["rate"] > 30)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", CASES)
def test_numpyro_models_can_be_unconstrained(name):
    case = CASES[name]
    _round_trip(qg.Target.from_numpyro(case.model, *case.args, **case.kwargs))


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", MODELS)
def test_pymc_models_can_be_unconstrained(name):
    _round_trip(qg.Target.from_pymc(MODELS[name]()))


def _round_trip(target):
    z = jnp.asarray(0.7 * np.random.default_rng(1).normal(size=target.dim))

    @jax.jit
    def again(z):
        values = target.constrain(z)
        own = {name: values[name] for name in target.model.variables()}
        return ravel_pytree(target.model.unconstrain(own))[0]

    np.testing.assert_allclose(again(z), z, rtol=0, atol=1e-10)


def test_draws_of_another_model_are_told(chains):
    target = qg.Target.from_numpyro(model, Y)
    draws = {name: np.array(x) for name, x in chains.get_samples(group_by_chain=True).items()}
    with pytest.raises(ValueError, match="the draws lack precision, which the model has; they have std"):
        qg.posterior_expectations(target, {"std": draws["std"]})
    with pytest.raises(ValueError, match="'precision' lie on the boundary of its support"):
        qg.posterior_expectations(target, draws | {"precision": 0 * draws["precision"]})
    with pytest.raises(ValueError, match=r"as \(chains, draws, \*\(\)\)"):
        qg.posterior_expectations(target, draws | {"precision": draws["precision"][..., None]})
    other = qg.Target.from_numpyro(model, 10 * Y)
    with pytest.warns(UserWarning, match="draws are of another posterior"):
        qg.posterior_expectations(other, chains)
