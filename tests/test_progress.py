"""What a fit tells as it runs: its words, few lines in a log, a live clock, signal and time left."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad._util.progress import AT_LEAST_EVERY, LiveLine, PlainLines, Sight, duration, time_left
from quietgrad.solvers.guarded_adam import MOST, guarded_adam, signal_to_noise

SIGHT = Sight("annealing", "MeanField", 1200, -12.345, 0.67, 3.0, "Quiet", 0.25, 90.0)


def test_a_line_has_all_that_is_known():
    line = SIGHT.words()
    for part in (
        "annealing (MeanField)",
        "step 1,200",
        "ELBO -12.35 ± 0.67",
        "signal/noise 0.25",
        "Quiet",
    ):
        assert part in line
    assert line.endswith("3.0 s · 90 s left")


def test_what_is_not_known_is_left_out():
    line = SIGHT._replace(estimator=None, signal=None, left=None).words()
    assert "None" not in line
    assert "left" not in line
    assert "noise" not in line


def test_a_log_gets_a_line_for_each_stage_then_fewer_and_the_last():
    lines: list[str] = []
    log = PlainLines(lines.append)
    for second in range(1, 1001):
        log.show(lambda second=second: SIGHT._replace(step=second, elapsed=float(second)))
    # Half as much again until the pause is a minute, then every minute.
    pauses = np.diff([float(line.split(" · ")[-2].removesuffix(" s")) for line in lines])
    assert pauses.max() == AT_LEAST_EVERY
    assert len(lines) < 30
    log.show(lambda: SIGHT._replace(stage="Newton steps", step=1001, elapsed=1000.1))
    assert "Newton steps" in lines[-1]
    log.show(lambda: SIGHT._replace(stage="Newton steps", step=1002, elapsed=1000.2))
    assert "1,002" not in lines[-1]
    log.close()
    assert "1,002" in lines[-1]
    log.close()


def test_the_live_line_goes_on_between_evaluations():
    now = [0.0]
    line = LiveLine(lambda: now[0])
    now[0] = 2.0
    assert line.text() == "compiling · 2.0 s"
    line.show(lambda: SIGHT)
    now[0] = 12.0
    assert line.text().endswith("13.0 s · 80 s left")
    line.show(lambda: SIGHT._replace(estimator="[red]Odd[/red]"))
    assert r"\[red]" in str(line.renderable().text)


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ((np.inf, None, None), None),
        ((30.0, None, None), 30.0),
        ((np.inf, 0.5, 20), 10.0),
        ((4.0, 0.5, 20), 4.0),
        ((np.inf, 0.5, -3), 0.0),
    ],
)
def test_time_left_is_to_the_first_limit(arguments, left):
    assert time_left(*arguments) == left


def test_durations_are_short():
    assert [duration(s) for s in (9.4, 99.0, 600.0, 7200.0)] == ["9 s", "99 s", "10 min", "2.0 h"]


@pytest.mark.parametrize("optimizer", [guarded_adam(0.1), optax.adam(0.1)], ids=["guarded", "optax"])
@pytest.mark.parametrize("ratio", [0.0, 0.25, 4.0])
def test_signal_to_noise_is_that_of_the_gradients(optimizer, ratio, key):
    """Gradients of mean sqrt(ratio) and variance 1 in 4,000 coordinates, after much larger ones."""
    dim, steps = 4000, 60
    update = jax.jit(optimizer.update)
    state = optimizer.init(jnp.zeros(dim))
    for _ in range(5):
        _, state = update(30 * jnp.ones(dim), state)
    before = state
    for draw in jax.random.normal(key, (steps, dim)):
        _, state = update(jnp.sqrt(ratio) + draw, state)
    found = signal_to_noise(before, state)
    assert found is not None
    # Of the mean of dim ratios m^2 / v, each with a spread below one; times (1 + ratio)^2, what the
    # share's error grows by. The large gradients before leave 30 * 0.9^60 = 0.05 in the mean, 0.003 in
    # its square; v's own spread over 60 steps shifts the share by 1 / 60 of it.
    tolerance = (5 / np.sqrt(dim) + 0.003 + 1 / steps) * (1 + ratio) ** 2
    assert abs(found - ratio) < tolerance


@pytest.mark.parametrize("optimizer", [guarded_adam(0.1), optax.adam(0.1)], ids=["guarded", "optax"])
def test_gradients_without_noise_are_all_signal(optimizer):
    """As much of it as is told apart from none at all, and none where the mean is zero."""
    update = jax.jit(optimizer.update)
    before = state = optimizer.init(jnp.zeros(3))
    for _ in range(40):
        _, state = update(jnp.array([1e-3, 1.0, -20.0]), state)
    assert signal_to_noise(before, state) == MOST
    opposite = optimizer.init(jnp.zeros(3))
    for t in range(40):
        _, opposite = update((-1.0) ** t * jnp.array([1e-3, 1.0, -20.0]), opposite)
    assert signal_to_noise(before, opposite) == 0.0


def test_without_adam_or_with_few_steps_nothing_is_said():
    sgd = optax.sgd(0.1).init(jnp.zeros(2))
    assert signal_to_noise(sgd, sgd) is None
    adam = optax.adam(0.1).init(jnp.zeros(2))
    assert signal_to_noise(adam, adam) is None


def test_a_fit_says_stage_estimator_signal_and_time_left(key, capsys):
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, 2)
    method = qg.Sgd("nocv", steps=100, evaluate_every=25, by_clock=False)
    qg.fit(target, method=method, progress=True, key=key)
    told = capsys.readouterr().err
    assert "start (MeanField) · step 0" in told
    assert "stochastic steps (MeanField) · step 25" in told
    assert "Iid + Sampled with 10 draws" in told
    assert "signal/noise" in told
    assert told.rstrip().endswith("0 s left")
