"""Locals by their own fixed point given the globals: what Newton steps lead to, and its derivatives.

  x(g) = argmax_x F(g, x),    z | g from x(g) and the root of a covariance at it.
Steps begin at a linear prediction from a centre, in one loop that holds the model once. They are not
differentiated: by the implicit function theorem one further step has the derivatives of the fixed point
by the globals, and that step is made only where derivatives are asked for. O(n) a draw.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...structure import BlockRoot
from ...targets import Target
from .locals import AbstractConditional, Locals, local_root
from .shorter import shorter

# Newton steps at most.
MOST = 40
# After a step of CLOSE posterior sds the error is about its square; one of EXACT has none to speak of.
CLOSE, EXACT = 1e-3, 1e-6
# What is left of a step of a block after which the next one would not be shorter.
SHORTER = 0.25


class Newton(NamedTuple):
    """Parameters after a step, its size for each block in the locals' own sds, the root before it."""

    after: Float[Array, "p n"]
    sizes: Float[Array, " n"]
    root: BlockRoot


class Solution(NamedTuple):
    """The fixed point for some globals, and the root of the locals' covariance there."""

    x: Float[Array, "p n"]
    root: BlockRoot


class Nested(AbstractConditional):
    """What kinds of nested locals share. Nothing in it is trained: gradients leave its arrays alone.

    `parameters` of the locals at the globals `center`, p for each block, and their `slopes` by the
    globals are where Newton steps for other globals begin.
    """

    target: eqx.AbstractVar[Target]
    center: eqx.AbstractVar[Float[Array, " k"]]
    parameters: eqx.AbstractVar[Float[Array, "p n"]]
    slopes: eqx.AbstractVar[Float[Array, "p k n"]]

    @abc.abstractmethod
    def step(self, g: Float[Array, " k"], x: Float[Array, "p n"]) -> Newton:
        """One Newton step for the parameters, whose derivative by g is that of the fixed point there."""

    @abc.abstractmethod
    def locals(self, found: Solution) -> Locals:
        """The locals at a fixed point."""

    @abc.abstractmethod
    def log_marginal_at(self, g: Float[Array, " k"], found: Solution) -> Float[Array, ""]:
        """log p(g) up to what the locals' own distribution misses."""

    @abc.abstractmethod
    def marginal_and_slope(
        self, g: Float[Array, " k"], found: Solution
    ) -> tuple[Float[Array, ""], Float[Array, " k"]]:
        """`log_marginal` and its gradient where the fixed point is known."""

    def at(self, g: Float[Array, " k"]) -> Locals:
        """The locals at the fixed point for these globals."""
        return self.locals(_solution(self, g))

    def log_marginal(self, g: Float[Array, " k"]) -> Float[Array, ""]:
        """E f(g, z) - log q(z | g) over q(z | g): what q(g) has to follow. Exact as q(z | g) is."""
        return self.fixed.log_marginal_at(g, _solution(self, g))

    def ended(self, last: "NewtonState") -> Solution:
        """The solution after the last step: where the root is known, the error is that step's square."""
        return Solution(last.x, last.root)

    def done(self, size: Float[Array, ""], before: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether a step of this size, after one of that size, is the last one."""
        return (size <= EXACT) | (before <= CLOSE)

    @property
    def fixed(self) -> "Nested":
        """The same without derivatives by its arrays."""
        return jax.lax.stop_gradient(self)

    def density(self, g: Float[Array, " k"], z: Float[Array, "b n"]) -> Float[Array, ""]:
        """f(g, z)."""
        return self.target.log_density(self.structure.join(g, z))

    def solve(self, g: Float[Array, " k"], most: int | Int[Array, ""] = MOST) -> Solution:
        """Steps from the prediction until they are small, without derivatives.

        Blocks are independent, so each has its own length of step: one after which the next step would
        not be shorter is taken back to a share of it. In a chain they have one length. With `most` = 0
        the prediction itself.
        """
        shift = (g - self.center)[None, :, None]
        first = self.parameters + jnp.sum(self.slopes * shift, axis=1)
        structure, infinite = self.structure, jnp.full((), jnp.inf, g.dtype)
        step = shorter(self.step, g, first)

        def again(state: NewtonState) -> Bool[Array, ""]:
            return ~state.done & (state.number <= most)

        def once(state: NewtonState) -> NewtonState:
            x = state.after
            found = step(g, x)
            # What is not a number must not get into a maximum, which need not keep it.
            sizes = jnp.where(jnp.isfinite(found.sizes), found.sizes, jnp.inf)
            if structure.chained:
                sizes = jnp.full_like(sizes, jnp.max(sizes))
            # A block that has settled moves by its rounding, now more and now less.
            worse = ~((sizes < jnp.maximum(state.before, CLOSE)) & (sizes < jnp.inf))
            back = state.base + SHORTER * (x - state.base)
            size = jnp.max(jnp.where(worse, jnp.inf, sizes))
            return NewtonState(
                x=x,
                root=found.root,
                after=jnp.where(worse[None, :], back, found.after),
                base=jnp.where(worse[None, :], state.base, x),
                before=jnp.where(worse, state.before, sizes),
                size=size,
                done=self.done(size, state.size),
                number=state.number + 1,
            )

        start = NewtonState(
            x=first,
            root=_unknown(self),
            after=first,
            base=first,
            before=jnp.full(structure.n, jnp.inf, g.dtype),
            size=infinite,
            done=jnp.zeros((), bool),
            number=jnp.zeros((), jnp.int32),
        )
        ended = jax.lax.while_loop(again, once, start)
        return self.ended(ended)

    def followed(self, g: Float[Array, " k"], x: Float[Array, "p n"]) -> Solution:
        """The solution x for g with its derivatives by g."""
        after = self.step(g, jax.lax.stop_gradient(x)).after
        return Solution(after, self.step(g, after).root)


class NewtonState(NamedTuple):
    """The last point that a step was made at and its root, the next one, and where to return to."""

    x: Array
    root: BlockRoot
    after: Array
    base: Array
    before: Array
    size: Array
    done: Array
    number: Array


@eqx.filter_custom_jvp
def _solution(nested: Nested, g: Float[Array, " k"]) -> Solution:
    return nested.solve(g)


@_solution.def_jvp
def _(primals: tuple[Nested, Array], tangents: tuple[Nested, Array | None]):  # noqa: ANN202
    nested, g = primals
    fixed, along = nested.fixed, tangents[1]
    found = _solution(fixed, g)
    if along is None:
        return found, jax.tree.map(jnp.zeros_like, found)
    x = jax.lax.stop_gradient(found.x)
    return found, jax.jvp(lambda g: fixed.followed(g, x), (g,), (along,))[1]


def _unknown(nested: Nested) -> BlockRoot:
    """A root of the right shapes, before the first step."""
    b, n, dtype = nested.structure.b, nested.structure.n, nested.parameters.dtype
    tie = jnp.zeros((b, b, max(0, n - 1)), dtype) if nested.structure.chained else None
    return local_root(jnp.zeros((b, b, n), dtype), tie)
