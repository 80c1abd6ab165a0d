"""`estimator="auto"` under the user's own optimiser."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.estimators.estimator import AbstractEstimator, Cost, Estimate
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


class Known(AbstractEstimator):
    """Gradients with a mean and a standard deviation that are known, the same for every parameter."""

    name: str = eqx.field(static=True)
    mean: float
    std: float
    gradients: int = eqx.field(static=True, default=1)

    @property
    def biased(self):
        """They are of no ELBO."""
        return True

    @property
    def title(self):
        """Its own."""
        return self.name

    def refuses(self, target, q):
        """Nothing."""
        del target, q

    def _init(self, target, q):
        del target, q

    def step(self, target, q, state, *, key):
        """Normal numbers."""
        del target
        leaves, shape = jax.tree.flatten(eqx.filter(q, eqx.is_inexact_array))
        keys = jr.split(key, len(leaves))
        drawn = [self.mean + self.std * jr.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        return Estimate(shape.unflatten(drawn), jnp.zeros(()), cost=Cost(self.gradients)), state


# So many that averages over parameters are precise.
MANY = 1000
BROAD = qg.MeanField(jnp.zeros(MANY), jnp.zeros(MANY))


@pytest.fixture(scope="module")
def broad():
    return qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=MANY)


def test_the_noise_that_is_measured_is_the_variance_in_the_norm_of_the_squares(broad, key):
    field = {"few": Known("few", 3.0, 2.0), "dear": Known("dear", 0.5, 0.5, gradients=7)}
    square = jax.tree.map(lambda x: 1.6 + x, BROAD)
    variance, cost = choosing.measure(broad, BROAD, field, square, None, by_clock=False, key=key)
    # A variance of n normal draws has a relative sd of sqrt(2 / (n - 1)).
    numbers = 2 * MANY * choosing.TURNS
    error = np.sqrt(2 / (choosing.REPEATS - 1) / numbers)
    for name, estimator in field.items():
        exact = 2 * MANY * estimator.std**2 / 1.6
        assert abs(variance[name] / exact - 1) < 5 * error
    assert cost["dear"] == 7 * cost["few"]


def test_the_least_variance_times_cost_is_chosen(broad, key):
    """Four times the variance at a tenth of the cost is worth a change, and not the way back."""
    square = jax.tree.map(lambda x: 1.0 + x, BROAD)
    dear, cheap = Known("dear", 0.0, 1.0, gradients=10), Known("cheap", 0.0, 2.0)
    field = {one.title: one for one in (dear, cheap)}

    def chosen(current):
        return choosing.choose(
            broad, BROAD, current, square, None, by_clock=False, among=lambda q: field, key=key
        )

    found = chosen(dear)
    assert found.estimator == cheap
    assert found.cost == 0.1
    # Each of the two variances has the error of the test above.
    error = np.sqrt(2 * 2 / (choosing.REPEATS - 1) / (2 * MANY * choosing.TURNS))
    assert abs(found.ratio / 0.4 - 1) < 5 * error
    assert chosen(cheap).estimator is None


@pytest.mark.parametrize(
    ("mean", "averaged", "seen"),
    [(1.0, 10.0, "drift"), (1.0, 1.0, "stay"), (0.1, 10.0, "stay"), (0.1, 1000.0, "drift")],
)
def test_a_run_drifts_where_the_mean_of_some_gradients_stands_out(broad, mean, averaged, seen):
    """Of a single gradient's square the mean has a share of a half, or of a hundredth."""
    switch = choosing.Switching(averaged=averaged, candidates=lambda q: {})
    session = Recorder(Problem(broad, BROAD), key=jr.key(0))
    estimator = Known("known", mean, 1.0)
    assert switch(session, BROAD, estimator, 10, by_clock=False) is None
    assert [d.kind for d in session.decisions] == [seen]
