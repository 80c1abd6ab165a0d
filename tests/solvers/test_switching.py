"""`estimator="auto"` under the user's own optimiser."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.fitting import run as run_fit
from quietgrad.session import Evaluation, Problem, Recorder
from quietgrad.solvers import choosing


@pytest.fixture
def narrow():
    return qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.exp(z) - z), dim=4)


def run(target, switch=choosing.Switching()):  # noqa: B008
    q = qg.MeanField.init(4, key=jr.key(0))
    method = qg.Sgd("auto", optax.adam(0.05), 2000, 20, by_clock=False, switching=switch)
    problem = Problem(target, q)
    recorder = Recorder(problem, evaluation=Evaluation(20, 20, share=None), key=jr.key(1))
    return run_fit(problem, method, recorder)


def test_looks_a_few_times_and_says_what_it_saw(narrow):
    result = run(narrow)
    assert len(result.decisions) == len(choosing.Switching().fractions)
    assert {d.kind for d in result.decisions} <= {"drift", "stay", "choose"}
    assert result.explain().startswith("step 100: ")


def test_a_far_start_is_drifting(narrow):
    far = qg.MeanField(loc=jnp.full(4, -30.0), log_std=jnp.full(4, -2.0))
    session = Recorder(Problem(narrow, far), key=jr.key(0))
    found = choosing.Switching()(session, far, choosing.cheapest(far), 10, by_clock=False)
    assert found is None
    assert [d.kind for d in session.decisions] == ["drift"]


def test_noise_brings_the_best_of_the_field_and_the_run_goes_on_with_it(narrow):
    quiet = qg.Pathwise(sampler="antithetic", entropy="stl", draws=2)
    switch = choosing.Switching(
        averaged=0.0,
        first=lambda q: qg.Pathwise(draws=1),
        candidates=lambda q: {quiet.title: quiet},
    )
    result = run(narrow, switch)
    assert "choose" in [d.kind for d in result.decisions]
    assert result.estimator == quiet
    again = run(narrow, switch)
    np.testing.assert_array_equal(again.q.loc, result.q.loc)


def test_moments_are_those_of_the_gradient(narrow):
    q = qg.MeanField.init(4, key=jr.key(2))
    estimator = qg.estimator("nocv", draws=2)
    key = jr.key(3)
    found = choosing.moments(narrow, q, estimator, None, key=key)
    state = estimator.init(narrow, q)
    steps = [jr.split(jr.fold_in(key, t))[1] for t in range(choosing.REPEATS)]
    grads = [estimator.step(narrow, q, state, key=k)[0].grad for k in steps]
    for block in ("loc", "log_std"):
        squares = [getattr(grad, block) ** 2 for grad in grads]
        np.testing.assert_allclose(getattr(found.square, block), np.mean(squares, axis=0))
    assert 0 < found.signal < 1
