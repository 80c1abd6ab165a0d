"""The conditional q(w | eps) of a semi-implicit family: w = mu(eps) + sigma(eps) * u, with u normal.

mu(eps) = b + A eps + B_mu h(eps) and log sigma(eps) = c + B_sigma h(eps). The network h has smooth
units, because Hamiltonian chains and Newton steps differentiate it. B starts at zero, and q as
the Gaussian N(b, A A' + diag(sigma^2)).
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

LOG_2PI = math.log(2 * math.pi)


class Generator(eqx.Module):
    """mu and sigma as functions of eps (mixing,), for points w (dim,).

    `hidden` are (matrix, bias) of the hidden layers, and `out` maps the last one to the nonlinear parts
    of mu (first rows) and of log sigma.
    """

    linear: Float[Array, "dim mixing"]
    shift: Float[Array, " dim"]
    log_std: Float[Array, " dim"]
    hidden: tuple[tuple[Float[Array, "_ _"], Float[Array, " _"]], ...]
    out: Float[Array, "two_dim width"]

    @classmethod
    def init(
        cls, dim: int, mixing: int, widths: tuple[int, ...], share: float, *, key: Key[Array, ""]
    ) -> "Generator":
        """A standard normal in which eps explains `share` of the variance of the first coordinates.

        Hidden layers are Glorot normal, and their biases normal, so that units bend at different places.
        """
        common = min(dim, mixing)
        linear = jnp.zeros((dim, mixing)).at[:common, :common].set(math.sqrt(share) * jnp.eye(common))
        std = jnp.where(jnp.arange(dim) < common, math.sqrt(1 - share), 1.0)
        layers, sizes = [], (mixing, *widths)
        for number, (inside, outside) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
            key_matrix, key_bias = jr.split(jr.fold_in(key, number))
            scale = math.sqrt(2 / (inside + outside))
            matrix = scale * jr.normal(key_matrix, (outside, inside))
            layers.append((matrix, 0.5 * jr.normal(key_bias, (outside,))))
        out = jnp.zeros((2 * dim, sizes[-1]))
        return cls(linear, jnp.zeros(dim), jnp.log(std), tuple(layers), out)

    def __call__(
        self, eps: Float[Array, " mixing"]
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """mu(eps) and log sigma(eps)."""
        h = eps
        for matrix, bias in self.hidden:
            h = jnp.tanh(matrix @ h + bias)
        bent = self.out @ h
        dim = self.shift.shape[0]
        return self.shift + self.linear @ eps + bent[:dim], self.log_std + bent[dim:]

    def log_conditional(self, w: Float[Array, " dim"], eps: Float[Array, " mixing"]) -> Float[Array, ""]:
        """log q(w | eps)."""
        mean, log_std = self(eps)
        gap = (w - mean) * jnp.exp(-log_std)
        return -0.5 * jnp.sum(gap**2 + LOG_2PI) - jnp.sum(log_std)

    def log_joint(self, w: Float[Array, " dim"], eps: Float[Array, " mixing"]) -> Float[Array, ""]:
        """log q(w | eps) + log N(eps; 0, I)."""
        return self.log_conditional(w, eps) - 0.5 * jnp.sum(eps**2 + LOG_2PI)

    def conditional_score(
        self, w: Float[Array, " dim"], eps: Float[Array, " mixing"]
    ) -> Float[Array, " dim"]:
        """grad_w log q(w | eps) = -(w - mu) / sigma^2."""
        mean, log_std = self(eps)
        return (mean - w) * jnp.exp(-2 * log_std)

    def reverse_score(
        self, w: Float[Array, " dim"], eps: Float[Array, " mixing"]
    ) -> Float[Array, " mixing"]:
        """t = grad_eps log q(eps | w) = grad_eps log q(w | eps) - eps."""
        return jax.grad(self.log_joint, argnums=1)(w, eps)

    def precision(self, eps: Float[Array, " mixing"]) -> Float[Array, "mixing mixing"]:
        """Fisher information of q(w, eps) in eps: I + J'D^-2 J + 2 S'S with J = dmu, S = dlog sigma."""
        mean_slope, scale_slope = jax.jacfwd(self)(eps)
        _, log_std = self(eps)
        scaled = mean_slope * jnp.exp(-log_std)[:, None]
        eye: Any = jnp.eye(eps.shape[0], dtype=eps.dtype)
        return eye + scaled.T @ scaled + 2 * scale_slope.T @ scale_slope
