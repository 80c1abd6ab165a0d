"""Importance sampling of q(w) = E_eps q(w | eps) with draws that suit w (after Sobolev & Vetrov 2019).

With r(eps | w) any density that depends on w alone and eps_1 ... eps_K drawn from it,
  w_k = q(w, eps_k) / r(eps_k | w)   has the mean q(w), so that
  E log (1/K) sum_{k>=1} w_k <= log q(w) <= E log (1/(K+1)) sum_{k>=0} w_k
where eps_0 is the draw that made w. The upper one, q^, gives a lower bound of the ELBO, and f - log q^
are exact importance weights: those of the pair (w, eps_0 ... eps_K). With r = N(0, I) these are the
bounds of Yin & Zhou (2018). Here r is a mixture of N(0, I) and of N(m, P^-1), m the mode of q(eps | w),
where P is the Fisher information. For a linear mu and a constant sigma that normal is q(eps | w) itself,
and bounds without the mixture are equalities.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..._numerics.lapack import solve_positive, solve_root
from .generator import LOG_2PI, Generator

# What a step of the search for the mode is shortened by, if the full one does not rise.
SHORTER = (1.0, 0.3, 0.05, 0.0)
# The key of the prior draws at which the search may start, the same for all points.
STARTS = 20190105


class Nodes(NamedTuple):
    """Draws of r and their log weights; gradients of the weights leave the draws where they are."""

    eps: Float[Array, "nodes mixing"]
    log_weights: Float[Array, " nodes"]


class Linearised(NamedTuple):
    """N(m, P^-1) with P = R R'."""

    mode: Float[Array, " mixing"]
    root: Float[Array, "mixing mixing"]
    inverse_root: Float[Array, "mixing mixing"]

    def place(self, n: Float[Array, "nodes mixing"]) -> Float[Array, "nodes mixing"]:
        """m + R^-T n for standard normal n."""
        return self.mode[None, :] + n @ self.inverse_root

    def log_prob(self, eps: Float[Array, "nodes mixing"]) -> Float[Array, " nodes"]:
        """The normal log density."""
        gap = (eps - self.mode[None, :]) @ self.root
        return jnp.sum(jnp.log(jnp.diagonal(self.root))) - 0.5 * jnp.sum(gap**2 + LOG_2PI, axis=1)


class Proposal(eqx.Module):
    """r(eps | w), `nodes` draws of it, and the weights that they have.

    `prior_share` of r is N(0, I): it bounds the weights by q(w | eps) / `prior_share`, whatever the
    network, and finds modes that `iterations` steps of Fisher scoring miss. These start at the posterior
    mean of the linear part, or at the best of `starts` prior draws. A share of one is SIVI. A quarter
    costs a quarter of the nodes where the other part is exact.
    """

    nodes: int = eqx.field(static=True, default=64)
    prior_share: float = eqx.field(static=True, default=0.25)
    iterations: int = eqx.field(static=True, default=6)
    starts: int = eqx.field(static=True, default=64)

    def linearised(self, generator: Generator, w: Float[Array, " dim"]) -> Linearised:
        """The mode of q(eps | w) by Fisher scoring, and the information there: functions of w alone."""
        generator, w = jax.lax.stop_gradient((generator, w))
        scaled = generator.linear * jnp.exp(-generator.log_std)[:, None]
        eye = jnp.eye(scaled.shape[1], dtype=w.dtype)
        pull = scaled.T @ ((w - generator.shift) * jnp.exp(-generator.log_std))
        linear = solve_positive(eye + scaled.T @ scaled, pull[:, None])
        # Where the network folds, the best of some prior draws is a better start than its linear part.
        prior = jr.normal(jr.key(STARTS), (self.starts, scaled.shape[1]), w.dtype)
        tried = jnp.concatenate([linear.T, prior])
        heights = jax.vmap(lambda eps: generator.log_joint(w, eps))(tried)
        mode = tried[jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights))]
        shorter = jnp.asarray(SHORTER, w.dtype)

        def step(_: Any, mode: Float[Array, " mixing"]) -> Float[Array, " mixing"]:
            slope = generator.reverse_score(w, mode)
            move = solve_positive(generator.precision(mode), slope[:, None])[:, 0]
            tried = mode[None, :] + shorter[:, None] * move[None, :]
            heights = jax.vmap(lambda eps: generator.log_joint(w, eps))(tried)
            return tried[jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights))]

        if self.iterations:
            mode = jax.lax.fori_loop(0, self.iterations, step, mode)
        root, inverse = jnp.split(solve_root(generator.precision(mode), eye), 2, axis=1)
        return Linearised(mode, root, inverse)

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, " dim"],
        further: Float[Array, "further mixing"],
        *,
        key: Key[Array, ""],
    ) -> Nodes:
        """The nodes for w, after those in `further` (such as the eps that made w)."""
        k = further.shape[1]
        key_normal, key_part = jr.split(key)
        n = jr.normal(key_normal, (self.nodes, k), w.dtype)
        if self.prior_share >= 1:
            eps = jnp.concatenate([further, n])
            log_r = _log_normal(eps)
        else:
            around = self.linearised(generator, w)
            prior = jr.uniform(key_part, (self.nodes, 1), w.dtype) < self.prior_share
            eps = jnp.concatenate([further, jnp.where(prior, n, around.place(n))])
            log_r = around.log_prob(eps)
            if self.prior_share > 0:
                shares = jnp.log(jnp.asarray([1 - self.prior_share, self.prior_share], w.dtype))
                log_r = jnp.logaddexp(shares[0] + log_r, shares[1] + _log_normal(eps))
        eps, log_r = jax.lax.stop_gradient((eps, log_r))
        log_joint = jax.vmap(lambda eps: generator.log_joint(w, eps))(eps)
        return Nodes(eps, log_joint - log_r)


def _log_normal(eps: Float[Array, "nodes mixing"]) -> Float[Array, " nodes"]:
    return -0.5 * jnp.sum(eps**2 + LOG_2PI, axis=1)
