"""A family that holds functions, as a file has it: its draws and densities as programs.

The functions themselves, those of a target above all, are not in a file. What was made from a target
is made again from another one (`around`), and can then be fitted.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from .._numerics.exported import NO_DERIVATIVES, Program, exported, function_of
from ..targets import Target
from .bases import AbstractBase
from .family import AbstractFamily, EstimatesDensity

NOT_FITTED = (
    "this q was read from a file, which has programs for its draws and density and none of its "
    "functions: it cannot be fitted; make a family in the same way and give it to load(path, family=...)"
)


class Programs(NamedTuple):
    """Those of the methods of these names."""

    transport: Program
    transport_and_log_prob: Program
    log_prob: Program


class StoredFamily(AbstractFamily):
    """Draws and densities of a family of the class `kind`, which cannot be differentiated.

    `arrays` are the leaves of that family, with None for those that are no arrays. `member` is the
    family itself around a target without a density, if nothing but targets is missing in it.
    """

    arrays: tuple[Array | None, ...]
    programs: Programs = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    base_size: int = eqx.field(static=True)
    base: AbstractBase
    member: AbstractFamily | None = None

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""]) -> "StoredFamily":
        """There is none."""
        raise ValueError("a stored family comes from a file: load(path).q")

    @classmethod
    def of(cls, q: AbstractFamily) -> "StoredFamily":
        """The programs of a family; a `ValueError` with the reason if it has none."""
        name = type(q).__name__
        if isinstance(q, EstimatesDensity):
            raise ValueError(f"the density of {name} is a random estimate, which no program has")
        own, rest = eqx.partition(q, eqx.is_array)
        leaves, form = jax.tree.flatten(own)

        def method(called: str, size: int) -> Program:
            def function(arrays: tuple[Array, ...], point: Float[Array, " size"]) -> tuple[Array, ...]:
                member = eqx.combine(jax.tree.unflatten(form, arrays), rest)
                return tuple(jax.tree.leaves(getattr(member, called)(point)))

            made = exported(function, leaves, size, q.dtype)
            if made.content is None:
                raise ValueError(
                    f"{name} cannot be exported as a program: it calls back to Python, or to something "
                    "that jax does not export"
                )
            return made

        found = Programs(
            method("transport", q.base_dim),
            method("transport_and_log_prob", q.base_dim),
            method("log_prob", q.dim),
        )
        arrays = tuple(leaf if eqx.is_array(leaf) else None for leaf in jax.tree.leaves(q))
        return cls(
            arrays=arrays,
            programs=found,
            kind=name,
            size=q.dim,
            base_size=q.base_dim,
            base=q.base,
        )

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.size

    @property
    def base_dim(self) -> int:
        """Length of e."""
        return self.base_size

    def around(self, target: Target) -> AbstractFamily | None:
        """The family itself with the functions of this target; None if it holds others."""
        return None if self.member is None else with_targets(self.member, target)

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """By the stored program."""
        return self._call(self.programs.transport, e)[0]

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """By the stored program."""
        z, log_prob = self._call(self.programs.transport_and_log_prob, e)
        return z, log_prob

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """Not by programs without derivatives."""
        raise ValueError(NO_DERIVATIVES)

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return self._call(self.programs.log_prob, z)[0]

    def _call(self, program: Program, point: Float[Array, " size"]) -> tuple[Array, ...]:
        arrays = tuple(leaf for leaf in self.arrays if leaf is not None)
        return function_of(program)(arrays, point)


def with_targets(q: AbstractFamily, target: Target) -> AbstractFamily:
    """The family with this target in place of each one that it holds."""
    return jax.tree.map(lambda x: target if _is_target(x) else x, q, is_leaf=_is_target)


def targets_in(q: AbstractFamily) -> list[Target]:
    """All targets that a family holds."""
    return [x for x in jax.tree.leaves(q, is_leaf=_is_target) if _is_target(x)]


def class_name(q: AbstractFamily) -> str:
    """The name of the family's class; of one from a file, that of the class it was saved from."""
    return q.kind if isinstance(q, StoredFamily) else type(q).__name__


def _is_target(x: Any) -> bool:
    return isinstance(x, Target)
