"""A fit as ArviZ has it: draws of q with names, dims and coords, their weights, likelihoods and data."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from .._extras import needs_extra
from ..display.table import named
from ..families import AbstractFamily
from ..targets import Target

with needs_extra("arviz", "an ArviZ object"):
    import arviz_base
    from arviz_stats.summary import summary as arviz_summary

# The axis of the rows of a target that was not made from a model, and its variable.
ROW, DATA = "row", "data"
# Values of the likelihood (draws x rows) that are worked on at once.
AT_ONCE = 2**20


def to_arviz(target: Target, q: AbstractFamily, key: Key[Array, ""], draws: int) -> Any:
    """A `DataTree` with `posterior`, `sample_stats` and, as far as there are any, likelihood and data.

    The posterior is `draws` independent draws of q, as one chain. `sample_stats` has `lp`, the target's
    log density on its unconstrained scale, `log_q`, and `log_weight`, their difference: what corrects
    the draws, up to a constant, by Pareto-smoothed importance sampling.
    """
    facts = jax.device_get(_facts(target, q, key, draws))
    lp, log_q = facts["lp"], facts["log_q"]
    groups = {
        "posterior": named(facts["point"]),
        "sample_stats": {"lp": lp, "log_q": log_q, "log_weight": lp - log_q},
    }
    if facts["log_likelihood"]:
        groups["log_likelihood"] = facts["log_likelihood"]
    groups = {name: _one_chain(group) for name, group in groups.items()}
    observed = _observed(target)
    if observed:
        groups["observed_data"] = {name: np.asarray(value) for name, value in observed.items()}
    coords, dims = _labels(target, groups)
    groups = {name: _without_slashes(group) for name, group in groups.items()}
    dims = {name: [*map(_without_slash, axes)] for name, axes in _without_slashes(dims).items()}
    return arviz_base.from_dict(groups, coords=_without_slashes(coords), dims=dims)


def summary(tree: Any, **settings: Any) -> Any:
    """`arviz_stats.summary` of the posterior, without diagnostics of chains: draws are independent."""
    chosen: dict[str, Any] = {"kind": "stats", **settings}
    return arviz_summary(tree, **chosen)


def plot(tree: Any, most: int = 12) -> Any:
    """A matplotlib figure with the marginals of the posterior's first `most` numbers."""
    from ..display.plots import marginals

    posterior = tree["posterior"]
    draws = {
        str(name): np.concatenate(np.asarray(posterior[name].transpose("chain", "draw", ...)))
        for name in posterior.data_vars
    }
    return marginals(draws, most=most)


@eqx.filter_jit
def _facts(target: Target, q: AbstractFamily, key: Key[Array, ""], draws: int) -> dict[str, Any]:
    def one(e: Float[Array, " base"]) -> dict[str, Any]:
        z, log_q = q.transport_and_log_prob(e)
        return {
            "point": target.constrain(z),
            "lp": target.log_density(z),
            "log_q": log_q,
            "log_likelihood": _log_likelihood(target, z),
        }

    e = q.base.sample((draws, q.base_dim), q.dtype, key=key)
    return jax.lax.map(one, e, batch_size=max(1, min(draws, AT_ONCE // max(1, target.rows))))


def _log_likelihood(target: Target, z: Float[Array, " dim"]) -> dict[str, Array]:
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


def _one_chain(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value)[None] for name, value in group.items()}


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
