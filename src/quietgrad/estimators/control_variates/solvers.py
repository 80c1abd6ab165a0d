"""How the coefficients are solved for: by least squares, with a ridge penalty, or by gradient descent.

The same three as in `weights/solvers`, here with the columns and the gradients written out.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .criteria import AbstractCriterion

Phi = Float[Array, "draws params"]
Columns = Float[Array, "draws params columns"]
# One coefficient per column, shared by all parameters, or a row of them for each parameter.
Beta = Float[Array, "..."]


class NormalEquations(NamedTuple):
    """Normal equations square beta = -cross, with a leading axis of parameters unless shared."""

    square: Float[Array, "*params columns columns"]
    cross: Float[Array, "*params columns"]


class AbstractSolver(eqx.Module):
    """Finds beta for given gradients and columns."""

    @abc.abstractmethod
    def solve(self, criterion: AbstractCriterion, phi: Phi, columns: Columns, *, shared: bool) -> Beta:
        """beta, of shape (columns,) if shared and (params, columns) if not."""


class FromEquations(AbstractSolver):
    """A solver that needs only the normal equations, so averages of them will do."""

    @abc.abstractmethod
    def solve_equations(self, equations: NormalEquations) -> Beta:
        """Solve the normal equations."""

    def solve(self, criterion: AbstractCriterion, phi: Phi, columns: Columns, *, shared: bool) -> Beta:
        """Form the normal equations and solve them."""
        return self.solve_equations(normal_equations(criterion, phi, columns, shared=shared))


class ExplicitLeastSquares(FromEquations):
    """The minimiser of the criterion; the shortest one when there are many."""

    def solve_equations(self, equations: NormalEquations) -> Beta:
        """Through the pseudo-inverse."""
        inverse = jnp.linalg.pinv(equations.square, hermitian=True)
        return -jnp.einsum("...jk,...k->...j", inverse, equations.cross)


class ExplicitRidge(FromEquations):
    """Ridge: adds `penalty` |beta|^2 to the criterion."""

    penalty: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-6)

    def solve_equations(self, equations: NormalEquations) -> Beta:
        """Solve (square + penalty I) beta = -cross."""
        eye = jnp.eye(equations.square.shape[-1], dtype=equations.square.dtype)
        lead = (1,) * (equations.square.ndim - 2)
        ridged = equations.square + (self.penalty.astype(eye.dtype) * eye).reshape(*lead, *eye.shape)
        return -jnp.linalg.solve(ridged, equations.cross[..., None])[..., 0]


class ExplicitDescent(AbstractSolver):
    """Gradient descent on the criterion from beta = 0 and alpha = -mean phi, written out literally."""

    steps: int = eqx.field(static=True, default=4)
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-3)

    def solve(self, criterion: AbstractCriterion, phi: Phi, columns: Columns, *, shared: bool) -> Beta:
        """`steps` joint steps of (alpha, beta); alpha moves only where the criterion has one."""
        count, rate = columns.shape[2], self.rate.astype(phi.dtype)

        def objective(point: tuple[Array, Array]) -> Float[Array, ""]:
            alpha, beta = point
            adjusted = phi + apply(columns, beta)
            if not criterion.intercept:
                return criterion.objective(adjusted)
            return criterion.weight(phi.shape[0]) * jnp.sum((adjusted + alpha[None, :]) ** 2)

        def step(_: Int[Array, ""], point: tuple[Array, Array]) -> tuple[Array, Array]:
            return jax.tree.map(lambda x, g: x - rate * g, point, jax.grad(objective)(point))

        beta = jnp.zeros(count if shared else (phi.shape[1], count), phi.dtype)
        return jax.lax.fori_loop(0, self.steps, step, (-jnp.mean(phi, axis=0), beta))[1]


def normal_equations(
    criterion: AbstractCriterion, phi: Phi, columns: Columns, *, shared: bool
) -> NormalEquations:
    """The criterion's normal equations, divided by two."""
    left, right = criterion.residual(columns), criterion.residual(phi)
    weight = criterion.weight(phi.shape[0])
    out = "" if shared else "p"
    square = jnp.einsum(f"lpj,lpk->{out}jk", left, left)
    return NormalEquations(weight * square, weight * jnp.einsum(f"lpj,lp->{out}j", left, right))


def apply(columns: Columns, beta: Beta) -> Phi:
    """C beta for every draw."""
    return columns @ beta if beta.ndim == 1 else jnp.einsum("lpj,pj->lp", columns, beta)


SOLVERS: dict[str, type[AbstractSolver]] = {
    "least-squares": ExplicitLeastSquares,
    "ridge": ExplicitRidge,
    "gd": ExplicitDescent,
}
