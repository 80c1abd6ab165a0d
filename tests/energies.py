"""Energies whose normalising constant and expectations are known."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float


class Rbm(eqx.Module):
    """Gaussian-Bernoulli: E(x) = |x - b|^2 / (2 s^2) - sum_j log(1 + exp(c_j + w_j.x / s^2)).

    A mixture of 2^hidden normal distributions, which can be added up and drawn from.
    """

    w: Float[Array, "hidden dim"]
    b: Float[Array, " dim"]
    c: Float[Array, " hidden"]
    log_std: Float[Array, ""]

    @classmethod
    def init(cls, dim, hidden, *, size=0.5, dtype=float, key):
        key_w, key_b, key_c = jr.split(key, 3)
        return cls(
            size * jr.normal(key_w, (hidden, dim), dtype),
            0.3 * jr.normal(key_b, (dim,), dtype),
            0.3 * jr.normal(key_c, (hidden,), dtype),
            jnp.zeros((), dtype),
        )

    def __call__(self, x):
        variance = jnp.exp(2 * self.log_std)
        return 0.5 * jnp.sum((x - self.b) ** 2) / variance - jnp.sum(
            jax.nn.softplus(self.c + self.w @ x / variance)
        )

    @eqx.filter_jit
    def parts(self):
        """Log masses and means of the mixture's normals, which have variance s^2."""
        hidden, dim = self.w.shape
        states = jnp.asarray(np.array(list(itertools.product([0.0, 1.0], repeat=hidden))), self.w.dtype)
        variance = jnp.exp(2 * self.log_std)
        shift = states @ self.w
        inside = jnp.sum(shift * self.b[None, :] + 0.5 * shift**2, axis=1) / variance
        constant = 0.5 * dim * (jnp.log(2 * jnp.pi) + 2 * self.log_std)
        return states @ self.c + inside + constant, self.b[None, :] + shift

    @eqx.filter_jit
    def log_z(self):
        return jax.nn.logsumexp(self.parts()[0])

    def sample(self, key, count):
        mass, mean = self.parts()
        key_part, key_noise = jr.split(key)
        part = jr.categorical(key_part, mass, shape=(count,))
        noise = jr.normal(key_noise, (count, mean.shape[1]), mean.dtype)
        return mean[part] + jnp.exp(self.log_std) * noise

    @eqx.filter_jit
    def log_likelihood(self, rows):
        return -jnp.mean(jax.vmap(self)(rows)) - self.log_z()


class Normal(eqx.Module):
    """E(x) = (x - m)'A'A(x - m) / 2."""

    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]

    def __call__(self, x):
        return 0.5 * jnp.sum((self.root @ (x - self.mean)) ** 2)

    @eqx.filter_jit
    def log_z(self):
        dim = self.mean.shape[0]
        return 0.5 * dim * jnp.log(2 * jnp.pi) - jnp.linalg.slogdet(self.root)[1]

    @eqx.filter_jit
    def log_likelihood(self, rows):
        return -jnp.mean(jax.vmap(self)(rows)) - self.log_z()
