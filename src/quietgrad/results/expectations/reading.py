"""Anyone's chains as points of a target: by chain, in order, on the target's unconstrained scale."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._util.compiling import program
from ...targets import Target

ACCEPTED = (
    "an ArviZ posterior, a NumPyro MCMC object, a dict of draws by name, or an array of unconstrained "
    "points (chains, draws, dim)"
)
# Draws may be stored in single precision, and a transform and its inverse lose some digits of it.
SAME = 1e-3


def points_of(target: Target, draws: Any) -> Float[np.ndarray, "chains draws dim"]:
    """The draws as points. A single chain may come without its axis."""
    given = _by_name(draws)
    if isinstance(given, Mapping) or (target.model is None and target.unravel is not None):
        return _from_trees(target, given)
    points = np.asarray(given, float)
    if points.ndim == 2:
        points = points[None]
    if points.ndim != 3 or target.dim not in (None, points.shape[2]):
        raise ValueError(
            f"points must have the shape (chains, draws, {target.dim or 'dim'}) or, for one chain, "
            f"(draws, {target.dim or 'dim'}); got {np.shape(given)}"
        )
    return points


def _by_name(draws: Any) -> Any:
    """What other packages hold their draws in, opened."""
    if hasattr(draws, "get_samples"):
        return draws.get_samples(group_by_chain=True)
    # A dict may have a variable of that name.
    posterior: Any = draws if isinstance(draws, dict) else getattr(draws, "posterior", draws)
    if hasattr(posterior, "data_vars"):
        return {
            str(name): np.asarray(values.transpose("chain", "draw", ...))
            for name, values in posterior.data_vars.items()
        }
    if isinstance(posterior, str) or posterior is None:
        raise TypeError(f"draws must be {ACCEPTED}; got {posterior!r}")
    return posterior


def _from_trees(target: Target, given: PyTree) -> Float[np.ndarray, "chains draws dim"]:
    if target.dim is None or target.unravel is None:
        raise ValueError(f"this target has points without names; draws must be {ACCEPTED}")
    free = jax.eval_shape(target.unravel, jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype))
    model = target.model
    if model is None:
        return _flat(_with_chains(given, free))
    shapes = jax.eval_shape(model.constrain, free)
    wanted = {name: shapes[name] for name in model.variables()}
    # A tree of groups has no names with slashes, which scopes make.
    renamed = {name.replace("/", "."): name for name in wanted}
    given = {renamed.get(name, name): value for name, value in given.items()}
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ValueError(
            f"the draws lack {', '.join(missing)}, which the model has; they have {', '.join(given)}"
        )
    chains = _with_chains({name: given[name] for name in wanted}, wanted)
    points, again = jax.device_get(_unconstrained(model, jax.tree.map(jnp.asarray, chains)))
    for name, value in points.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"draws of {name!r} lie on the boundary of its support, or are not finite: they have no "
                "unconstrained value, and no gradient there"
            )
    for name, value in chains.items():
        size = np.max(np.abs(value), initial=0)
        if np.max(np.abs(value - again[name]), initial=0) > SAME * size:
            raise ValueError(
                f"draws of {name!r} are outside of its support in this model; are they of another model?"
            )
    return _flat(points)


@program
def _unconstrained(model: Any, chains: dict[str, Array]) -> tuple[PyTree, dict[str, Array]]:
    """Points of the draws, and the draws of these points."""

    def one(values: dict[str, Array]) -> tuple[PyTree, dict[str, Array]]:
        point = model.unconstrain(values)
        return point, {name: x for name, x in model.constrain(point).items() if name in values}

    return jax.lax.map(jax.vmap(one), chains)


def _with_chains(given: PyTree, shapes: PyTree) -> PyTree:
    """Arrays with axes for chains and draws."""
    form = jax.tree.structure(shapes)
    if jax.tree.structure(given) != form:
        raise ValueError(f"draws must have the form of the target's points, {form}; got another one")
    leaves = [np.asarray(x) for x in jax.tree.leaves(given)]
    wanted = [x.shape for x in jax.tree.leaves(shapes)]
    if all(x.shape[1:] == shape for x, shape in zip(leaves, wanted, strict=True)):
        leaves = [x[None] for x in leaves]
    for x, shape in zip(leaves, wanted, strict=True):
        if x.shape[2:] != shape or x.ndim < 2:
            raise ValueError(
                f"a variable of shape {shape} must come as (chains, draws, *{shape}), or as "
                f"(draws, *{shape}) for one chain; got {x.shape}"
            )
    if len({x.shape[:2] for x in leaves}) > 1:
        raise ValueError(f"variables differ in chains or draws: {sorted({x.shape[:2] for x in leaves})}")
    return jax.tree.unflatten(form, leaves)


def _flat(chains: PyTree) -> Float[np.ndarray, "chains draws dim"]:
    """Points in the order of `ravel_pytree`: leaf after leaf."""
    leaves = [np.asarray(x, float) for x in jax.tree.leaves(chains)]
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in leaves], axis=2)
