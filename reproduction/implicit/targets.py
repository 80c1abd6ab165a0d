"""The six posteriors of the study, with reference draws that come from their definition or from NUTS."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg

REFERENCE = 2000


class Posterior(NamedTuple):
    """A log density with its dimension, that of eps, and exact draws where the definition gives them."""

    log_density: Callable
    dim: int
    mixing: int
    exact: Callable[[np.random.Generator, int], np.ndarray] | None = None


def _normal(z, mean, precision, log_det):
    gap = z - mean
    return -0.5 * (gap @ precision @ gap + log_det + len(mean) * np.log(2 * np.pi))


def _mixture(parts) -> Posterior:
    """Equal shares of 2-d normals (mean, covariance)."""
    means = [np.asarray(m, float) for m, _ in parts]
    covariances = [np.asarray(c, float) for _, c in parts]
    terms = [
        (m, np.linalg.inv(c), np.linalg.slogdet(c)[1]) for m, c in zip(means, covariances, strict=True)
    ]

    def log_density(z):
        return jax.nn.logsumexp(jnp.stack([_normal(z, *t) for t in terms])) - np.log(len(terms))

    def exact(rng, count):
        which = rng.integers(len(parts), size=count)
        drawn = [
            rng.multivariate_normal(m, c, size=count) for m, c in zip(means, covariances, strict=True)
        ]
        return np.stack(drawn)[which, np.arange(count)]

    return Posterior(log_density, 2, 3, exact)


def banana() -> Posterior:
    """N(0, [[1, .9], [.9, 1]]) of (z1, z2 + z1^2 + 1), as in the literature."""
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    term = np.zeros(2), np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1]

    def log_density(z):
        return _normal(jnp.stack([z[0], z[1] + z[0] ** 2 + 1]), *term)

    def exact(rng, count):
        x = rng.multivariate_normal(np.zeros(2), covariance, size=count)
        return np.stack([x[:, 0], x[:, 1] - x[:, 0] ** 2 - 1], axis=1)

    return Posterior(log_density, 2, 3, exact)


def two_modes() -> Posterior:
    """Unit normals at (-2, 0) and (2, 0)."""
    return _mixture([([-2, 0], np.eye(2)), ([2, 0], np.eye(2))])


def x_shape() -> Posterior:
    """Two narrow normals that cross."""
    return _mixture([([0, 0], [[2, 1.8], [1.8, 2]]), ([0, 0], [[2, -1.8], [-1.8, 2]])])


def waveform(rows: int = 400) -> Posterior:
    """Logistic regression on two classes of Breiman's waveforms: 21 covariates, prior precision 0.01."""
    rng = np.random.default_rng(1984)
    grid = np.arange(1, 22)
    h1, h2, h3 = (np.maximum(6 - np.abs(grid - c), 0) for c in (11, 15, 7))
    y = rng.integers(2, size=rows)
    share = rng.uniform(size=(rows, 1))
    first, second = share * h1 + (1 - share) * h2, share * h1 + (1 - share) * h3
    x = np.where(y[:, None] == 0, first, second) + rng.normal(size=(rows, 21))
    x = jnp.asarray(np.concatenate([np.ones((rows, 1)), x], axis=1))
    y = jnp.asarray(y.astype(float))

    def log_density(z):
        logit = x @ z
        return jnp.sum(y * logit - jnp.logaddexp(logit, 0.0)) - 0.005 * jnp.sum(z**2)

    return Posterior(log_density, 22, 10)


def diffusion(dim: int = 100, beta: float = 10.0, noise: float = 0.1, seen: int = 20) -> Posterior:
    """A path of dx = beta x (1 - x^2) dt + dB on [0, 1] from x = 0, observed at 20 times."""
    rng, dt = np.random.default_rng(2013), 1 / dim
    path = np.zeros(dim + 1)
    for i in range(dim):
        drift = beta * path[i] * (1 - path[i] ** 2)
        path[i + 1] = path[i] + dt * drift + np.sqrt(dt) * rng.normal()
    at = np.linspace(dim // seen, dim, seen).astype(int) - 1
    y = jnp.asarray(path[1:][at] + noise * rng.normal(size=seen))

    def log_density(z):
        before = jnp.concatenate([jnp.zeros(1, z.dtype), z[:-1]])
        step = z - before - dt * beta * before * (1 - before**2)
        return -0.5 * jnp.sum(step**2) / dt - 0.5 * jnp.sum((z[at] - y) ** 2) / noise**2

    return Posterior(log_density, dim, 10)


def network(rows: int = 24, width: int = 5) -> Posterior:
    """A network with one hidden layer of 5 units on 24 points of a noisy sine; unit normal prior."""
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(-2, 2, rows))
    y = jnp.asarray(np.sin(2 * x) + 0.2 * rng.normal(size=rows))
    x = jnp.asarray(x)

    def log_density(z):
        first, bias, second = z[:width], z[width : 2 * width], z[2 * width : 3 * width]
        fitted = jnp.tanh(2 * x[:, None] * first[None] + bias[None]) @ second + z[-1]
        return -0.5 * jnp.sum((y - fitted) ** 2) / 0.2**2 - 0.5 * jnp.sum(z**2)

    return Posterior(log_density, 3 * width + 1, 10)


def with_mixing(make: Callable[[], Posterior], mixing: int) -> Callable[[], Posterior]:
    """The same posterior for an eps of another dimension."""
    return lambda: make()._replace(mixing=mixing)


TARGETS: dict[str, Callable[[], Posterior]] = {
    "banana": banana,
    "two-modes": two_modes,
    "x-shape": x_shape,
    "waveform": waveform,
    "diffusion": diffusion,
    "network": network,
    # Where shared nodes stop to suffice: the waveforms with an eps of fewer dimensions.
    **{f"waveform-{k}": with_mixing(waveform, k) for k in (2, 3, 4, 6)},
}


@functools.cache
def target_of(name: str) -> tuple[Posterior, qg.Target]:
    """The posterior of this name and its target, the same each time: programs serve every seed."""
    posterior = TARGETS[name]()
    return posterior, qg.Target(posterior.log_density, dim=posterior.dim)


def reference(name: str, cache: Path) -> np.ndarray:
    """2 x `REFERENCE` draws: exact ones, or four NUTS chains; kept in `cache`."""
    file = cache / f"reference-{name}.npy"
    if file.exists():
        return np.load(file)
    posterior = TARGETS[name]()
    if posterior.exact is not None:
        draws = posterior.exact(np.random.default_rng(0), 2 * REFERENCE)
    else:
        draws = _nuts(posterior, 2 * REFERENCE)
    cache.mkdir(parents=True, exist_ok=True)
    np.save(file, draws.astype(np.float32))
    return draws


def _nuts(posterior: Posterior, count: int) -> np.ndarray:
    """Four chains of NumPyro's NUTS, thinned by two."""
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=lambda z: -posterior.log_density(z), target_accept_prob=0.85)
    chains = 4
    mcmc = MCMC(
        kernel,
        num_warmup=1000,
        num_samples=count // chains * 2,
        num_chains=chains,
        thinning=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    start = 0.1 * jr.normal(jr.key(1), (chains, posterior.dim))
    mcmc.run(jr.key(0), init_params=start)
    draws = np.asarray(mcmc.get_samples(group_by_chain=True))
    # Chains take turns, so that both halves of the draws have all of them.
    return np.swapaxes(draws, 0, 1).reshape(-1, posterior.dim)
