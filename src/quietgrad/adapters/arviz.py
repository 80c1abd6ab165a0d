"""A fit as ArviZ has it: draws of q with names, dims and coords, their weights, likelihoods and data."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from .._numerics.lapack import over_points
from .._util.compiling import program
from .._util.extras import needs_extra
from ..diagnostics.posterior import PosteriorDraws
from ..families import AbstractFamily
from ..results.display.table import named
from ..targets import Target
from ..targets.stored import without_density

with needs_extra("arviz", "an ArviZ object"):
    import arviz_base
    from arviz_stats.summary import summary as arviz_summary

# The axis of the rows of a target that was not made from a model, and its variable.
ROW, DATA = "row", "data"
# Values of the likelihood (draws x rows) that are worked on at once.
AT_ONCE = 2**20


def to_arviz(
    target: Target,
    q: AbstractFamily,
    key: Key[Array, ""],
    draws: int,
    corrected: PosteriorDraws | None = None,
    *,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """A `DataTree` with `posterior`, `sample_stats` and, as far as there are any, likelihood and data.

    The posterior is `draws` independent draws of q, as one chain. `sample_stats` has `lp`, the target's
    log density on its unconstrained scale, `log_q`, and `log_weight`, their difference: what corrects
    the draws, up to a constant, by Pareto-smoothed importance sampling. Draws that are `corrected`
    already take the place of q's, and have no weights. A result that was loaded without its model has
    `log_q` only, and neither likelihood nor data. The attribute `kind` of the posterior says
    which they are. `coords` and `dims` are labels beside or instead of the model's own.
    """
    points, log_q = _drawn(q, key, draws) if corrected is None else (corrected.points, None)
    facts = jax.device_get(_facts(target, points))
    stats = {} if facts["lp"] is None else {"lp": facts["lp"]}
    if log_q is not None:
        stats["log_q"] = np.asarray(log_q)
    if len(stats) == 2:
        stats["log_weight"] = stats["lp"] - stats["log_q"]
    kind = f"{draws:,} draws of q" if corrected is None else corrected.kind
    return _tree(target, facts, stats, kind, 1, coords, dims)


def chains_to_arviz(
    target: Target,
    z: Float[Array, "chains draws dim"],
    stats: Mapping[str, Any],
    kind: str,
    *,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """The same of posterior draws of several chains, with `stats` of shape (chains, draws)."""
    facts = jax.device_get(_facts(target, z.reshape(-1, z.shape[-1])))
    flat = {name: np.reshape(value, -1) for name, value in stats.items()}
    known = {} if facts["lp"] is None else {"lp": facts["lp"]}
    return _tree(target, facts, {**known, **flat}, kind, z.shape[0], coords, dims)


def _tree(
    target: Target,
    facts: dict[str, Any],
    stats: dict[str, Any],
    kind: str,
    chains: int,
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Sequence[str]] | None,
) -> Any:
    """All groups of a `DataTree`, from draws one chain after the other."""
    groups = {"posterior": named(facts["point"]), "sample_stats": stats}
    if facts["log_likelihood"]:
        groups["log_likelihood"] = facts["log_likelihood"]
    groups = {name: _by_chain(group, chains) for name, group in groups.items()}
    observed = _observed(target)
    if observed:
        groups["observed_data"] = {name: np.asarray(value) for name, value in observed.items()}
    own_coords, own_dims = _labels(target, groups)
    labels, axes = {**own_coords, **(coords or {})}, {**own_dims, **(dims or {})}
    _check_labels(coords or {}, dims or {}, axes, groups)
    groups = {name: _without_slashes(group) for name, group in groups.items()}
    axes = {name: [*map(_without_slash, some)] for name, some in _without_slashes(axes).items()}
    tree = arviz_base.from_dict(groups, coords=_without_slashes(labels), dims=axes)
    tree["posterior"].attrs["kind"] = kind
    return tree


def summary(tree: Any, **settings: Any) -> Any:
    """`arviz_stats.summary` of the posterior, without diagnostics of chains: draws are independent."""
    chosen: dict[str, Any] = {"kind": "stats", **settings}
    return arviz_summary(tree, **chosen)


def plot(tree: Any, most: int = 12) -> Any:
    """A matplotlib figure with the marginals of the posterior's first `most` numbers."""
    from ..results.display.plots import marginals

    posterior = tree["posterior"]
    draws = {
        str(name): np.concatenate(np.asarray(posterior[name].transpose("chain", "draw", ...)))
        for name in posterior.data_vars
    }
    return marginals(draws, most=most)


@program
def _drawn(
    q: AbstractFamily, key: Key[Array, ""], draws: int
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    e = q.base.sample((draws, q.base_dim), q.dtype, key=key)
    return jax.vmap(q.transport_and_log_prob)(e)


@program
def _facts(target: Target, points: Float[Array, "draws dim"]) -> dict[str, Any]:
    known = not without_density(target)

    def one(z: Float[Array, " dim"]) -> dict[str, Any]:
        return {
            "point": target.constrain(z),
            "lp": target.log_density(z) if known else None,
            "log_likelihood": _log_likelihood(target, z),
        }

    at_once = max(1, min(points.shape[0], AT_ONCE // max(1, target.rows)))
    return over_points(one, points, at_once=at_once)


def _log_likelihood(target: Target, z: Float[Array, " dim"]) -> dict[str, Array]:
    if without_density(target):
        return {}
    if target.model is not None:
        return target.model.log_likelihoods(target.point(z))
    return {DATA: target.log_likelihoods(z)} if target.rows else {}


def _observed(target: Target) -> dict[str, Any]:
    if target.model is not None:
        return target.model.observed()
    return named(target.data, DATA) if target.rows else {}


def _without_slash(name: str) -> str:
    """NumPyro's scopes make names with slashes, which a tree of groups takes for paths."""
    return name.replace("/", ".")


def _without_slashes(named: Mapping[str, Any]) -> dict[str, Any]:
    return {_without_slash(name): value for name, value in named.items()}


def _by_chain(group: Mapping[str, Any], chains: int) -> dict[str, Any]:
    arrays = {name: np.asarray(value) for name, value in group.items()}
    return {name: x.reshape(chains, -1, *x.shape[1:]) for name, x in arrays.items()}


def _labels(target: Target, groups: Mapping[str, Mapping[str, Any]]) -> tuple[Any, dict[str, list[str]]]:
    """Coords, and dims with a name for every axis of a variable that has one for any."""
    if target.model is None:
        rows = [*groups.get("observed_data", ()), *groups.get("log_likelihood", ())]
        coords = {ROW: np.arange(target.rows)} if rows else {}
        return coords, {name: [ROW] for name in rows}
    dims = {
        name: [axis or f"{name}_dim_{i}" for i, axis in enumerate(axes)]
        for name, axes in target.model.dims().items()
        if any(axes)
    }
    return dict(target.model.coords()), dims


def _check_labels(
    coords: Mapping[str, Any],
    dims: Mapping[str, Sequence[str]],
    axes: Mapping[str, Sequence[str]],
    groups: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raise a `ValueError` for labels of variables, axes or lengths that are not there."""
    lengths: dict[str, set[int]] = {}
    for group, variables in groups.items():
        for name, value in variables.items():
            shape = value.shape if group == "observed_data" else value.shape[2:]
            if name in dims and len(dims[name]) != len(shape):
                raise ValueError(
                    f"dims name {len(dims[name])} axes of {name!r}, which has shape {shape}"
                )
            for axis, length in zip(axes.get(name, ()), shape, strict=False):
                lengths.setdefault(axis, set()).add(length)
    variables = {name for group in groups.values() for name in group}
    for what, given, known in (("dims", dims, variables), ("coords", coords, {*lengths})):
        for name in given:
            if name not in known:
                raise ValueError(f"{what} has {name!r}; there are {', '.join(sorted(known)) or 'none'}")
    for axis, labels in coords.items():
        if lengths[axis] != {len(labels)}:
            found = " and ".join(map(str, sorted(lengths[axis])))
            raise ValueError(f"coords has {len(labels)} labels for {axis!r}, which has length {found}")
