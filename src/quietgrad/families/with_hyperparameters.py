"""q(z) beside a point mass at hyperparameters h: a family over points (z, h) that fits both at once.

T(e) = (T_q(e), h) with log q(z, h) = log q(z), whose score is zero in h. The ELBO's gradient in h is
then the mean of grad_h f(z, h), from the same draws and the same backward pass as that in lambda:
maximum likelihood for h with the evidence replaced by its bound (empirical Bayes, variational EM).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import whole
from .bases import AbstractBase, Normal
from .family import AbstractFamily, Advice, HasEntropy
from .mean_field import MeanField


class AbstractWithHyperparameters(AbstractFamily):
    """What both kinds share. Points are z followed by the arrays of `hyperparameters`, flat."""

    of_z: eqx.AbstractVar[AbstractFamily]
    hyperparameters: eqx.AbstractVar[PyTree]

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], base: AbstractBase = Normal()
    ) -> "AbstractWithHyperparameters":
        """A mean-field start for the first half of the coordinates, zeros for the others."""
        half = whole(dim, "dim", least=1) // 2
        start = MeanField.init(dim - half, key=key, base=base)
        return cls(of_z=start, hyperparameters=jnp.zeros(half), base=base)

    @property
    def dim(self) -> int:
        """Coordinates of z and hyperparameters together."""
        return self.of_z.dim + sum(x.size for x in jax.tree.leaves(self._arrays))

    @property
    def base_dim(self) -> int:
        """That of z: hyperparameters take no draws."""
        return self.of_z.base_dim

    @property
    def advice(self) -> Advice:
        """That of z: hyperparameters bring no noise of their own."""
        return self.of_z.advice

    @property
    def _arrays(self) -> PyTree:
        return eqx.filter(self.hyperparameters, eqx.is_inexact_array)

    def _with_point(self, z: Float[Array, " z"]) -> Float[Array, " dim"]:
        return jnp.concatenate([z, ravel_pytree(self._arrays)[0].astype(z.dtype)])

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """(T(e), h)."""
        return self._with_point(self.of_z.transport(e))

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The density is that of z."""
        z, log_prob = self.of_z.transport_and_log_prob(e)
        return self._with_point(z), log_prob

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score of z, and zero for h."""
        z, log_prob, score = self.of_z.transport_and_score(e)
        none = jnp.zeros(self.dim - z.size, score.dtype)
        return self._with_point(z), log_prob, jnp.concatenate([score, none])

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log q of the part of the point that is random."""
        return self.of_z.log_prob(z[: self.of_z.dim])


class WithHyperparameters(AbstractWithHyperparameters):
    """Any family beside hyperparameters, on the same base."""

    of_z: AbstractFamily
    hyperparameters: PyTree
    base: AbstractBase


class WithHyperparametersAndEntropy(AbstractWithHyperparameters, HasEntropy):
    """A family with a known entropy beside hyperparameters, on the same base."""

    of_z: AbstractFamily
    hyperparameters: PyTree
    base: AbstractBase

    def entropy(self) -> Float[Array, ""]:
        """That of z."""
        assert isinstance(self.of_z, HasEntropy)
        return self.of_z.entropy()


def beside(q: AbstractFamily, hyperparameters: PyTree) -> AbstractWithHyperparameters:
    """The family of points (z, h) that starts at q and at these hyperparameters."""
    if isinstance(q, HasEntropy):
        return WithHyperparametersAndEntropy(of_z=q, hyperparameters=hyperparameters, base=q.base)
    return WithHyperparameters(of_z=q, hyperparameters=hyperparameters, base=q.base)
