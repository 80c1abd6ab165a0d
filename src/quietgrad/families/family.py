"""The contract of a variational family: z = T(e; lambda) with e from a fixed base.

Symbols: e base draw (base_dim,), z point (dim,), lambda the family's arrays, all of them trained.
Every method takes one draw or one point; callers use `jax.vmap`.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import whole
from ..targets import Target
from .advice import Advice
from .bases import AbstractBase


class AbstractFamily(eqx.Module):
    """A reparametrisable distribution whose density is known.

    `contained` lists the other families whose members this one can represent, or come close to. A family
    that lists any also has `_start_from`.
    """

    base: eqx.AbstractVar[AbstractBase]
    contained: ClassVar[tuple[type["AbstractFamily"], ...]] = ()

    @classmethod
    @abc.abstractmethod
    def init(cls, dim: int, *, key: Key[Array, ""]) -> "AbstractFamily":
        """A random start, as in the paper's experiments."""

    @classmethod
    def for_target(cls, target: Target, *, key: Key[Array, ""]) -> "AbstractFamily":
        """The start of a family that was asked for by name: `init`, by one program."""
        assert target.dim is not None
        return eqx.filter_jit(cls.init)(target.dim, key=key)

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length of z."""

    @property
    def base_dim(self) -> int:
        """Length of e; equal to `dim` unless the family says otherwise."""
        return self.dim

    @property
    def dtype(self) -> Any:
        """Floating-point type of the parameters, and so of the draws."""
        return jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array))[0].dtype

    @property
    def advice(self) -> Advice:
        """Draws, samplers and rates that suit the family; by default those of a flow.

        Sticking the landing quiets a family that comes close to the posterior. One that cannot start
        from a simpler solution rarely does.
        """
        return Advice(
            quiet_draws=10,
            search_draws=32,
            search_sampler="rqmc",
            search_entropy="stl" if self.contained else "sampled",
            explore_rate=0.06 / math.sqrt(self.dim),
            anneal_rate=0.01,
            most_anneal_rate=0.01,
            near_rate=0.01,
        )

    def contains(self, other: "AbstractFamily") -> bool:
        """Whether `other` is of this family, or of one that it contains, on the same base and dim."""
        if type(other) is type(self):
            return _alike(self, other)
        return isinstance(other, self.contained) and (other.dim, other.base) == (self.dim, self.base)

    def start_from(self, other: "AbstractFamily", *, key: Key[Array, ""]) -> "AbstractFamily":
        """The member of this family closest to `other`, from which its own parameters can be learned."""
        if not self.contains(other):
            names = [cls.__name__ for cls in (type(self), *self.contained)]
            raise ValueError(
                f"{type(self).__name__} cannot start from this {type(other).__name__}: it takes "
                f"{' or '.join(names)} with the same base ({type(self.base).__name__}) and the same "
                f"shapes (dim {self.dim}); got base {type(other.base).__name__} and dim {other.dim}"
            )
        return other if type(other) is type(self) else self._start_from(other, key=key)

    def _start_from(self, other: "AbstractFamily", *, key: Key[Array, ""]) -> "AbstractFamily":
        """The start for an `other` of one of the families in `contained`."""
        raise NotImplementedError(f"{type(self).__name__} lists `contained` without `_start_from`")

    @abc.abstractmethod
    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = T(e)."""

    @abc.abstractmethod
    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z = T(e) and log q(z), the latter computed from e (no inverse)."""

    @abc.abstractmethod
    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """z, log q(z) and the path score, grad_z log q(z)."""

    @abc.abstractmethod
    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log q(z) of one point."""

    def log_prob(self, z: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """log q(z), for one point or for any batch of points."""
        z = jnp.asarray(z)
        if z.ndim == 0 or z.shape[-1] != self.dim:
            raise ValueError(f"points must have last axis {self.dim}; got shape {z.shape}")
        return jnp.vectorize(self._log_prob, signature="(d)->()")(z)

    def sample(self, key: Key[Array, ""], draws: int = 1) -> Float[Array, "draws dim"]:
        """Independent draws of z."""
        shape = (whole(draws, "draws", least=1), self.base_dim)
        return jax.vmap(self.transport)(self.base.sample(shape, self.dtype, key=key))


F = TypeVar("F", bound=AbstractFamily)


def split(q: F) -> tuple[PyTree, Callable[[PyTree], F]]:
    """The trained arrays of `q`, and the function that puts them back."""
    params, static = eqx.partition(q, eqx.is_inexact_array)
    return params, lambda params: eqx.combine(params, static)


def _alike(a: AbstractFamily, b: AbstractFamily) -> bool:
    """Whether two members of a class differ in nothing but the numbers that are trained."""
    outlines = []
    for q in (a, b):
        trained, fixed = eqx.partition(q, eqx.is_inexact_array)
        outlines.append((jax.tree.map(jnp.shape, trained), fixed))
    return bool(eqx.tree_equal(*outlines))
