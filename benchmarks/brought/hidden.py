"""Hidden states: Markov chains of words, of returns, and animals that are seen again or not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan

from .languages import Numpyro

STATES, WORDS = 3, 6


def _sentences():
    rng = np.random.default_rng(311)
    move = rng.dirichlet(np.ones(STATES), size=STATES)
    emit = rng.dirichlet(0.4 * np.ones(WORDS), size=STATES)

    def chain(length):
        state, states, words = 0, [], []
        for _ in range(length):
            state = rng.choice(STATES, p=move[state])
            states.append(state)
            words.append(rng.choice(WORDS, p=emit[state]))
        return np.array(states), np.array(words)

    states, words = chain(80)
    return states, words, chain(120)[1]


def supervised_hmm(states, words):
    """Hidden Markov model with known states: Dirichlet rows, categorical counts."""
    move = numpyro.sample("move", dist.Dirichlet(jnp.ones(STATES)).expand([STATES]).to_event(1))
    emit = numpyro.sample("emit", dist.Dirichlet(0.1 * jnp.ones(WORDS)).expand([STATES]).to_event(1))
    numpyro.sample("next", dist.Categorical(move[states[:-1]]), obs=states[1:])
    numpyro.sample("word", dist.Categorical(emit[states]), obs=words)
    return move, emit


def semi_supervised_hmm(states, words, unlabelled):
    """Hidden Markov model, some words without states: the forward algorithm in a scan."""
    move, emit = supervised_hmm(states, words)
    log_move, log_emit = jnp.log(move), jnp.log(emit)

    def step(log_prob, word):
        return logsumexp(log_prob[:, None] + log_move + log_emit[:, word][None], axis=0), None

    last, _ = jax.lax.scan(step, log_emit[:, unlabelled[0]], unlabelled[1:])
    numpyro.factor("forward", logsumexp(last))


def _returns():
    rng = np.random.default_rng(312)
    state, y = 0, []
    for _ in range(150):
        state = state if rng.uniform() < 0.92 else 1 - state
        y.append(rng.normal([-1.0, 1.5][state], [0.6, 1.0][state]))
    return np.array(y)


def regime_switching(y):
    """Hidden Markov model with Gaussian emissions: ordered means, persistent states."""
    stay = numpyro.sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
    ordered = dist.constraints.ordered_vector
    mean = numpyro.sample("mean", dist.ImproperUniform(ordered, (), (2,)))
    numpyro.factor("mean_prior", dist.Normal(0, 3).log_prob(mean).sum())
    std = numpyro.sample("std", dist.HalfNormal(2).expand([2]).to_event(1))
    log_move = jnp.log(jnp.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]]))
    log_seen = dist.Normal(mean, std).log_prob(y[:, None])

    def step(log_prob, seen):
        return logsumexp(log_prob[:, None] + log_move, axis=0) + seen, None

    last, _ = jax.lax.scan(step, jnp.log(0.5) + log_seen[0], log_seen[1:])
    numpyro.factor("forward", logsumexp(last))


def _captures():
    """Animals marked at their first capture: seen or not on seven occasions."""
    rng = np.random.default_rng(313)
    first = rng.integers(0, 6, size=120)
    survive, seen = 0.6 + 0.2 * (np.arange(6) % 2), 0.75
    history = np.zeros((120, 7), int)
    for animal, start in enumerate(first):
        history[animal, start] = 1
        alive = True
        for time in range(start + 1, 7):
            alive = alive and rng.uniform() < survive[time - 1]
            history[animal, time] = alive and rng.uniform() < seen
    return history


def capture_recapture(history):
    """Cormack-Jolly-Seber: constant survival and detection, states summed out inside a scan."""
    animals, times = history.shape
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    detection = numpyro.sample("detection", dist.Uniform(0.0, 1.0))

    def step(carry, seen):
        marked, alive = carry
        with numpyro.plate("animals", animals, dim=-1), numpyro.handlers.mask(mask=marked):
            odds = survival * alive
            alive = numpyro.sample("alive", dist.Bernoulli(odds), infer={"enumerate": "parallel"})
            numpyro.sample("seen", dist.Bernoulli(detection * alive), obs=seen)
        return (marked | seen.astype(bool), alive), None

    alive = jnp.ones(animals, dtype=int)
    marked = history[:, 0].astype(bool)
    scan(step, (marked, alive), jnp.swapaxes(history, 0, 1)[1:])


def capture_by_year(history):
    """Cormack-Jolly-Seber: survival of each year around a mean, sums over fates in closed form."""
    times = history.shape[1]
    mean = numpyro.sample("mean", dist.Uniform(0.0, 1.0))
    std = numpyro.sample("std", dist.Uniform(0.0, 5.0))
    year = numpyro.sample("year", dist.Normal(0, 1).expand([times - 1]).to_event(1))
    survival = jax.nn.sigmoid(jnp.log(mean / (1 - mean)) + std * year)
    detection = numpyro.sample("detection", dist.Beta(1.0, 1.0))
    first, last = history.argmax(axis=1), times - 1 - history[:, ::-1].argmax(axis=1)
    # Never seen again after t: died, or lived on unseen.
    unseen = [jnp.ones(())]
    for t in range(times - 2, -1, -1):
        unseen.append(1 - survival[t] + survival[t] * (1 - detection) * unseen[-1])
    unseen = jnp.stack(unseen[::-1])
    steps = np.arange(times - 1)
    between = (steps >= first[:, None]) & (steps < last[:, None])
    caught = jnp.where(history[:, 1:] == 1, jnp.log(detection), jnp.log1p(-detection))
    alive = jnp.where(between, jnp.log(survival) + caught, 0.0).sum(axis=1)
    numpyro.factor("histories", jnp.sum(alive + jnp.log(unseen[last])))


STATES_SEEN, WORDS_SEEN, UNLABELLED = _sentences()
RETURNS, HISTORIES = _returns(), _captures()
MODELS = {
    "hmm-supervised": lambda: Numpyro(supervised_hmm, (STATES_SEEN, WORDS_SEEN)),
    "hmm-semi-supervised": lambda: Numpyro(semi_supervised_hmm, (STATES_SEEN, WORDS_SEEN, UNLABELLED)),
    "hmm-regimes": lambda: Numpyro(regime_switching, (RETURNS,)),
    "capture-recapture": lambda: Numpyro(capture_recapture, (HISTORIES,)),
    "capture-by-year": lambda: Numpyro(capture_by_year, (HISTORIES,), accept=0.95),
}
