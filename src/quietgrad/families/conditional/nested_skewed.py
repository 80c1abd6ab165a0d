"""Nested skewed normals: given the globals, each local's best sinh-arcsinh normal, by Newton steps.

  z_i = m_i + s_i t(e_i; a_i)  (`skew.py`) maximises  E f(g, z) + sum_i log s_i + E log t'(e_i; a_i).
Given the globals the locals are independent, so the expectation over all of them is a sum of
expectations over each. A Gauss-Hermite rule of a few nodes has it: all locals at their node x_k at once.
With log s_i = l, its derivatives by (m, l, a) need z_m = 1, z_l = s t, z_a = s dt/da, and f', f'' at the
nodes: a gradient and one product with the Hessian a node, whatever n.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._util.device import on_device
from ...structure import BlockRoot, Structure
from ...structure import small_matrices as small
from ...targets import Target
from .locals import Locals, local_root
from .nested import Nested, Newton, NewtonState, Solution
from .nested_laplace import NestedLaplace
from .shorter import shorter
from .skew import log_slope, skewed

# Nodes of the rule: exact for polynomials up to degree 13.
NODES = 7
# A step changes no log scale and no skew by more than this.
FURTHEST = 0.7
# The least f'' that counts, as a share of 1 / s^2: for likelihoods that are not log-concave everywhere.
LEAST_SHARE = 1e-3
# Nats that the ELBO over the locals may be off by: a fiftieth of what a flow of the globals is worth.
# After a step of s sds the locals' error is about s^2, and the ELBO's n s^4 / 2.
ERROR = 1e-5


class NestedSkewed(Nested):
    """Skewed locals in blocks of one, independent given the globals. The parameters are m, log s and a.

    The best member given the globals, to the accuracy of the rule; exact where the conditional is
    Gaussian. A Newton step costs `NODES` gradients and products with the Hessian.
    """

    target: Target
    center: Float[Array, " k"]
    parameters: Float[Array, "3 n"]
    slopes: Float[Array, "3 k n"]
    structure: Structure

    @classmethod
    def start(
        cls, laplace: NestedLaplace, std: Float[np.ndarray, " n"], skewness: Float[np.ndarray, " n"]
    ) -> "NestedSkewed":
        """From the modes at the centre, sds there, and f''' s^3, on the host."""
        structure, dtype = laplace.structure, laplace.center.dtype
        if structure.b != 1 or structure.chained:
            raise ValueError(f"skewed locals are for independent blocks of one; got {structure}")
        x = np.stack([np.asarray(laplace.parameters)[0], np.log(std), np.clip(skewness / 3, -1.0, 1.0)])
        slopes = np.zeros((3, structure.k, structure.n))
        return cls(
            target=laplace.target,
            center=laplace.center,
            parameters=on_device(x, dtype),
            slopes=on_device(slopes, dtype),
            structure=structure,
        )

    def step(self, g: Float[Array, " k"], x: Float[Array, "3 n"]) -> Newton:
        """x + A^-1 F, with F the gradient, and A minus the Hessian as it is where F = 0.

        There sum w f' s t = -1 and sum w f' s dt/da = -E d log t'/da, which makes A positive definite
        for every log-concave f.
        """
        (node, weight), a, s = _rule(x.dtype), x[2], jnp.exp(x[1])
        points = self._points(x)
        density = shorter(self.density, g, x[:1])

        def derivatives(z: Float[Array, "1 n"]) -> tuple[Array, Array]:
            return jax.jvp(jax.grad(lambda z: density(g, z)), (z,), (jnp.ones_like(z),))

        first, second = jax.vmap(derivatives)(points[:, None, :])
        first, second = first[:, 0], second[:, 0]
        root = jnp.sqrt(1 + node**2)[:, None]
        each, wide = a[None, :], s[None, :]
        t = skewed(node[:, None], each)
        along = jnp.stack([jnp.ones_like(t), wide * t, wide * skewed_by_a(node[:, None], each)])
        ratio = node[:, None] / root
        up, across = jnp.sinh(each), jnp.cosh(each)
        flat = (up + ratio * across) / (across + ratio * up)
        zero, one = jnp.zeros_like(a), jnp.ones_like(a)
        mean_flat = weight @ flat
        gradient = jnp.einsum("k,kn,pkn->pn", weight, first, along)
        gradient = gradient + jnp.stack([zero, one, mean_flat])
        steep = jax.lax.stop_gradient(jnp.maximum(-second, LEAST_SHARE / wide**2))
        inner = jnp.einsum("k,kn,pkn,rkn->prn", weight, steep, along, along)
        square = weight @ flat**2
        shape = jnp.stack(
            [
                jnp.stack([zero, zero, zero]),
                jnp.stack([zero, one, mean_flat]),
                jnp.stack([zero, mean_flat, square]),
            ]
        )
        # In units of the scale, so that single precision can solve it.
        units = jnp.stack([s, one, one])
        matrix = jax.lax.stop_gradient((inner + shape) * units[:, None] * units[None, :])
        matrix = matrix + 1e-6 * small.identity(3, s.shape[0], s)
        factor = small.cholesky(matrix)
        units = jax.lax.stop_gradient(units)
        half = small.solve_vectors(factor, units * gradient)
        move = small.solve_vectors(factor, half, transposed=True)
        shape_size = jnp.max(jnp.abs(jax.lax.stop_gradient(move[1:])), axis=0)
        share = jnp.minimum(1.0, FURTHEST / jnp.maximum(shape_size, 1e-30))
        move = move * jnp.stack([one, share, share])
        return Newton(x + units * move, jnp.max(jnp.abs(half), axis=0), _root(x))

    def ended(self, last: NewtonState) -> Solution:
        """What the last step leads to, if it was one: the scales are parameters themselves."""
        x = jnp.where(last.done, last.after, last.x)
        return Solution(x, _root(x))

    def done(self, size: Float[Array, ""], before: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether what a step of this size leads to is close enough."""
        del before
        return size <= (2 * ERROR / max(1, self.structure.n)) ** 0.25

    def locals(self, found: Solution) -> Locals:
        """m, s and a."""
        return Locals(found.x[:1], found.root, found.x[2:])

    def marginal_and_slope(
        self, g: Float[Array, " k"], found: Solution
    ) -> tuple[Float[Array, ""], Float[Array, " k"]]:
        """The parameters maximise it, so that what they do when g moves does not count."""
        return jax.value_and_grad(self.log_marginal_at)(g, found)

    def log_marginal_at(self, g: Float[Array, " k"], found: Solution) -> Float[Array, ""]:
        """The ELBO over the locals by the rule."""
        x = found.x
        node, weight = _rule(x.dtype)
        values = jax.vmap(lambda z: self.density(g, z[None]))(self._points(x))
        slopes = jnp.sum(log_slope(node[:, None], x[2][None, :]), axis=1)
        entropy = 0.5 * x.shape[1] * math.log(2 * math.pi * math.e)
        return weight @ (values + slopes) + jnp.sum(x[1]) + entropy

    def _points(self, x: Float[Array, "3 n"]) -> Float[Array, "nodes n"]:
        node = _rule(x.dtype)[0]
        return x[:1] + jnp.exp(x[1:2]) * skewed(node[:, None], x[2:])


def _root(x: Float[Array, "3 n"]) -> BlockRoot:
    return local_root(jnp.exp(x[1])[None, None, :])


def skewed_by_a(e: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """dt/da."""
    return e * jnp.sinh(a) + jnp.sqrt(1 + e**2) * jnp.cosh(a)


def _rule(dtype: jnp.dtype) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
    """Nodes and weights for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return jnp.asarray(nodes, dtype), jnp.asarray(weights / weights.sum(), dtype)
