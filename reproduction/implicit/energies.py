"""Energies with a known or computable log Z, and data for each."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np


class Problem(NamedTuple):
    """An energy at its start, rows to fit, rows to test, and log Z of a fitted energy (None: by AIS).

    `draws(energy, key, count)` are exact draws of e^{-E} / Z where these are known.
    """

    energy: Any
    train: np.ndarray
    test: np.ndarray
    log_z: Callable[[Any], jax.Array] | None
    draws: Callable[[Any, jax.Array, int], jax.Array] | None = None


class Gaussian(eqx.Module):
    """E = |R'(x - m)|^2 / 2."""

    mean: jax.Array
    root: jax.Array

    def __call__(self, x):
        """The energy of a point."""
        return 0.5 * jnp.sum((jnp.tril(self.root).T @ (x - self.mean)) ** 2)


def gaussian(dim: int = 10) -> Problem:
    """Correlated normal rows."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(dim, dim)) / np.sqrt(dim) + np.eye(dim)
    data = rng.normal(size=(1500, dim)) @ mix.T + rng.normal(size=dim)

    def log_z(e):
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(e.root))))
        return 0.5 * dim * np.log(2 * np.pi) - log_det

    def draws(e, key, count):
        u = jr.normal(key, (dim, count), e.mean.dtype)
        return e.mean[None, :] + jnp.linalg.solve(jnp.tril(e.root).T, u).T

    start = Gaussian(jnp.zeros(dim), jnp.eye(dim) * 0.5)
    return Problem(start, data[:1000], data[1000:], log_z, draws)


class Rbm(eqx.Module):
    """Gaussian-Bernoulli: E = |x - b|^2 / (2 s^2) - sum_j softplus(c_j + W_j'x / s)."""

    weights: jax.Array
    visible: jax.Array
    hidden: jax.Array
    log_std: jax.Array

    def __call__(self, x):
        """The energy of a point."""
        std = jnp.exp(self.log_std)
        quadratic = 0.5 * jnp.sum(((x - self.visible) / std) ** 2)
        return quadratic - jnp.sum(jax.nn.softplus(self.hidden + self.weights @ (x / std)))


def _rbm_parts(e: Rbm) -> tuple[jax.Array, jax.Array]:
    """Given hidden units the visible ones are normal: log masses of all 2^12, and what they add to b."""
    units = e.hidden.shape[0]
    states = np.unpackbits(np.arange(2**units, dtype=">u4").view(np.uint8)).reshape(-1, 32)
    h = jnp.asarray(states[:, 32 - units :], e.weights.dtype)
    pull = h @ e.weights
    std = jnp.exp(e.log_std)
    log_mass = h @ e.hidden + jnp.sum(pull * (e.visible / std)[None] + 0.5 * pull**2, axis=1)
    return log_mass, pull * std[None]


def rbm_log_z(e: Rbm) -> jax.Array:
    """Exact: a sum over the states of the hidden units."""
    constant = 0.5 * e.visible.shape[0] * np.log(2 * np.pi)
    return jax.nn.logsumexp(_rbm_parts(e)[0]) + constant + jnp.sum(e.log_std)


def rbm_draws(e: Rbm, key: jax.Array, count: int) -> jax.Array:
    """A hidden state by its mass, and a normal draw given it."""
    key_state, key_noise = jr.split(key)
    log_mass, shift = _rbm_parts(e)
    state = jr.categorical(key_state, log_mass, shape=(count,))
    noise = jr.normal(key_noise, (count, e.visible.shape[0]), e.visible.dtype)
    return e.visible[None] + shift[state] + jnp.exp(e.log_std)[None] * noise


def rbm(dim: int = 10, units: int = 12) -> Problem:
    """Rows drawn from a machine with 12 hidden units."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(units, dim)) * 0.6
    h = rng.integers(2, size=(3000, units)).astype(float)
    # A few Gibbs sweeps from random hidden units.
    for _ in range(50):
        x = h @ weights + rng.normal(size=(3000, dim))
        h = (rng.uniform(size=h.shape) < 1 / (1 + np.exp(-(x @ weights.T - 0.5)))).astype(float)
    x = h @ weights + rng.normal(size=(3000, dim))
    small = 0.05 * jr.normal(jr.key(0), (units, dim))
    start = Rbm(small, jnp.zeros(dim), jnp.zeros(units), jnp.full(dim, jnp.log(1.2)))
    return Problem(start, x[:2000], x[2000:], rbm_log_z, rbm_draws)


class Ica(eqx.Module):
    """E = sum_j log cosh(w_j'x) with independent sources, Z = pi^d / |det W|."""

    weights: jax.Array

    def __call__(self, x):
        """The energy of a point."""
        s = self.weights @ x
        return jnp.sum(jnp.logaddexp(s, -s) - jnp.log(2.0))


def ica(dim: int = 8) -> Problem:
    """Sources with density 1 / (pi cosh s), mixed."""
    rng = np.random.default_rng(2)
    source = np.log(np.tan(0.5 * np.pi * rng.uniform(1e-6, 1 - 1e-6, size=(3000, dim))))
    mix = rng.normal(size=(dim, dim)) / np.sqrt(dim) + np.eye(dim)
    x = source @ mix.T

    def log_z(e):
        return dim * np.log(np.pi) - jnp.linalg.slogdet(e.weights)[1]

    def draws(e, key, count):
        u = jr.uniform(key, (dim, count), e.weights.dtype, 1e-6, 1 - 1e-6)
        return jnp.linalg.solve(e.weights, jnp.log(jnp.tan(0.5 * jnp.pi * u))).T

    return Problem(Ica(0.5 * jnp.eye(dim)), x[:2000], x[2000:], log_z, draws)


class Mlp(eqx.Module):
    """A network and a quadratic term that holds the chains."""

    layers: tuple
    center: jax.Array
    width: jax.Array

    def __call__(self, x):
        """The energy of a point."""
        h = (x - self.center) / self.width
        for matrix, bias in self.layers[:-1]:
            h = jax.nn.silu(matrix @ h + bias)
        matrix, bias = self.layers[-1]
        held = jax.lax.stop_gradient((self.center, self.width))
        return (matrix @ h + bias)[0] + 0.5 * jnp.sum(((x - held[0]) / held[1]) ** 2)


def _mlp(data: np.ndarray, widths: tuple[int, ...]) -> Mlp:
    dim = data.shape[1]
    sizes, layers = (dim, *widths, 1), []
    for number, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layers.append((jr.normal(jr.key(number), (b, a)) / np.sqrt(a), jnp.zeros(b)))
    std = 1.2 * data.std(0) + 1e-3
    return Mlp(tuple(layers), jnp.asarray(data.mean(0)), jnp.asarray(std))


@eqx.filter_jit
def plane_log_z(e: Any) -> jax.Array:
    """Quadrature on a grid over [-6, 6]^2, beyond which the quadratic term leaves nothing."""
    axis = np.linspace(-6, 6, 401)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2))
    values = jax.lax.map(e, grid, batch_size=4096)
    return jax.nn.logsumexp(-values) + 2 * np.log(axis[1] - axis[0])


def rings() -> Problem:
    """Two rings in the plane."""
    rng = np.random.default_rng(3)
    radius = np.where(rng.integers(2, size=3000), 0.8, 2.0) + 0.1 * rng.normal(size=3000)
    angle = rng.uniform(0, 2 * np.pi, 3000)
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return Problem(_mlp(x, (64, 64)), x[:2000], x[2000:], plane_log_z)


def pinwheel(arms: int = 5) -> Problem:
    """Five bent arms in the plane."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3000, 2)) * np.array([0.3, 0.05]) + np.array([1.0, 0.0])
    angle = 2 * np.pi * rng.integers(arms, size=3000) / arms + 0.25 * np.exp(x[:, 0])
    turned = [
        x[:, 0] * np.cos(angle) - x[:, 1] * np.sin(angle),
        x[:, 0] * np.sin(angle) + x[:, 1] * np.cos(angle),
    ]
    x = 2 * np.stack(turned, 1)
    return Problem(_mlp(x, (64, 64)), x[:2000], x[2000:], plane_log_z)


def digits() -> Problem:
    """8 x 8 digits, with uniform noise of a grey level."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(5)
    x, _ = load_digits(return_X_y=True)
    x = (x + rng.uniform(size=x.shape)) / 17
    x = x[rng.permutation(len(x))]
    return Problem(_mlp(x, (128,)), x[:1400], x[1400:], None)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "gaussian": gaussian,
    "rbm": rbm,
    "ica": ica,
    "rings": rings,
    "pinwheel": pinwheel,
    "digits": digits,
}
