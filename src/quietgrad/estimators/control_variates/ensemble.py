"""Several weak control variates side by side (Geffner & Domke 2018)."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...families import AbstractFamily
from ...targets import Target
from .control_variate import AbstractControlVariate, Sample


class Ensemble(AbstractControlVariate):
    """All columns of all `members`; the coefficient rule decides how much of each is used."""

    members: tuple[AbstractControlVariate, ...]

    def __check_init__(self):
        """An ensemble of nothing is a mistake."""
        if not self.members:
            raise ValueError("an ensemble needs at least one control variate")

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """The first member's objection."""
        reasons = (member.refuses(target, q) for member in self.members)
        return next((reason for reason in reasons if reason is not None), None)

    def hessian_products(self, q: AbstractFamily) -> int:
        """Those of all members."""
        return sum(member.hessian_products(q) for member in self.members)

    def init(self, target: Target, q: AbstractFamily) -> tuple:
        """The members' states."""
        return tuple(member.init(target, q) for member in self.members)

    def columns(
        self, state: tuple, target: Target, q: AbstractFamily, sample: Sample, *, key: Key[Array, ""]
    ) -> Float[Array, "draws params columns"]:
        """The members' columns, one after the other."""
        keys = jr.split(key, len(self.members))
        parts = zip(self.members, state, keys, strict=True)
        return jnp.concatenate([m.columns(s, target, q, sample, key=k) for m, s, k in parts], axis=2)

    def update(
        self, state: tuple, target: Target, q: AbstractFamily, sample: Sample, *, key: Key[Array, ""]
    ) -> tuple:
        """Each member learns by itself."""
        keys = jr.split(key, len(self.members))
        parts = zip(self.members, state, keys, strict=True)
        return tuple(m.update(s, target, q, sample, key=k) for m, s, k in parts)
