"""The named sites of a target: which coordinates each has, and the target with some of them held fixed.

Sites are the entries of a dict of points, as NumPyro's and PyMC's models have them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from .named_model import AbstractNamedModel, AbstractParameters
from .target import Target


def sites_of(target: Target) -> dict[str, tuple[int, int]]:
    """The first coordinate of each site and the one after its last, in order."""
    if target.unravel is None or target.dim is None:
        raise ValueError(
            "families by site need a target whose points are a dict of named sites: one of a NumPyro or "
            "PyMC model, or Target(..., example={'name': array, ...})"
        )
    shapes = jax.eval_shape(target.unravel, jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype))
    if not isinstance(shapes, dict):
        raise ValueError(
            f"families by site need points that are a dict of named sites; these are a "
            f"{type(shapes).__name__}"
        )
    places, first = {}, 0
    for name in sorted(shapes):
        size = sum(leaf.size for leaf in jax.tree.leaves(shapes[name]))
        places[name] = first, first + size
        first += size
    return places


class SitesAsPoints(AbstractParameters):
    """Sites of a target that are fitted as points, at the maximum of the ELBO in them.

    They are on the target's unconstrained scale, where their prior has its Jacobian.
    """

    whole: Target
    first: dict[str, PyTree]

    @property
    def start(self) -> dict[str, PyTree]:
        """Zeros, the origin of the unconstrained scale."""
        return self.first

    def values(self, h: dict[str, PyTree]) -> dict[str, PyTree]:
        """As they are."""
        return h

    def at(self, target: Target, h: dict[str, PyTree]) -> Target:
        """The density of the other sites, given these."""
        prior, likelihood = _Given(self.whole.log_prior, h), self.whole.log_likelihood
        model = self.whole.model
        made = Target(
            prior,
            None if likelihood is None else _Given(likelihood, h),
            target.data,
            target.size if target.rows else None,
            example=_example(target),
            model=None if model is None else _FixedSites(model, h),
        )
        return made.with_mesh(target.mesh)


def with_points(target: Target, names: Sequence[str]) -> Target:
    """The target of the other sites, whose functions take these as hyperparameters."""
    point = _example(target)
    first = {name: point.pop(name) for name in names}
    prior, likelihood = target.log_prior, target.log_likelihood

    def log_prior(z: dict[str, PyTree], h: dict[str, PyTree]) -> Array:
        return prior({**z, **h})

    def log_likelihood(z: dict[str, PyTree], data: PyTree, h: dict[str, PyTree]) -> Array:
        assert likelihood is not None
        return likelihood({**z, **h}, data)

    return Target(
        log_prior,
        None if likelihood is None else log_likelihood,
        target.data,
        target.size if target.rows else None,
        example=point,
        model=None if target.model is None else _FixedSites(target.model, first),
        parameters=SitesAsPoints(target, first),
        no_rows=target.no_rows,
    )


def _example(target: Target) -> dict[str, PyTree]:
    assert target.unravel is not None
    assert target.dim is not None
    return dict(target.unravel(jnp.zeros(target.dim)))


class _Given(eqx.Module):
    """A function of points with some of their sites filled in."""

    function: Any
    fixed: dict[str, PyTree]

    def __call__(self, z: dict[str, PyTree], *data: PyTree) -> Array:
        return self.function({**z, **self.fixed}, *data)


class _FixedSites(AbstractNamedModel):
    """A model some of whose sites are known."""

    model: AbstractNamedModel
    fixed: dict[str, PyTree]

    def constrain(self, point: PyTree) -> dict[str, Array]:
        """All variables."""
        return self.model.constrain({**point, **self.fixed})

    def log_likelihoods(self, point: PyTree) -> dict[str, Array]:
        """At all sites."""
        return self.model.log_likelihoods({**point, **self.fixed})

    def observed(self) -> dict[str, Any]:
        """The model's."""
        return self.model.observed()

    def dims(self) -> Mapping[str, Sequence[str | None]]:
        """The model's."""
        return self.model.dims()

    def coords(self) -> Mapping[str, Any]:
        """The model's."""
        return self.model.coords()

    def predictive(
        self,
        draws: Mapping[str, Array],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        key: Key[Array, ""],
    ) -> dict[str, Any]:
        """Draws have all variables, as `constrain` gives them."""
        return self.model.predictive(draws, args, kwargs, key=key)
