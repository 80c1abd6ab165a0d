"""What a NumPyro model consists of, read from one abstract run: nothing is computed or compiled."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.util import helpful_support_errors
from numpyro.primitives import Messenger


class Plate(NamedTuple):
    """A plate: its size and the number of rows that a run of the model takes of it."""

    size: int
    taken: int


class Site(NamedTuple):
    """A sample or deterministic site. `free` is the shape on the unconstrained scale."""

    name: str
    batch: tuple[int, ...]
    event: tuple[int, ...]
    free: tuple[int, ...]
    plates: tuple[tuple[str, int], ...]


class Structure(NamedTuple):
    """The sites of a model by what they are, each in the order of the run."""

    latent: tuple[Site, ...]
    observed: tuple[Site, ...]
    factors: tuple[Site, ...]
    enumerated: tuple[Site, ...]
    deterministic: tuple[Site, ...]
    plates: tuple[tuple[str, Plate], ...]

    @property
    def nesting(self) -> int:
        """The number of batch axes that plates use."""
        dims = [dim for group in self[:4] for site in group for _, dim in site.plates]
        return -min(dims, default=0)


class Given(Messenger):
    """Hands a model the rows of its plates by name, and a key where it asks for one.

    Every algorithm that takes a density does the second; the first is what makes a minibatch.
    """

    def __init__(self, fn: Any, rows: dict[str, Array]):
        self.rows = rows
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Fill in what is still open."""
        if msg["type"] == "plate" and msg["name"] in self.rows:
            rows = self.rows[msg["name"]]
            msg["value"] = rows
            # NumPyro compares the second argument with the number of rows, and warns.
            msg["args"] = (msg["args"][0], rows.shape[0])
        elif msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jr.key(0)


class HasParametersError(Exception):
    """The model has parameters without a prior that have no value."""


class OpenParameters(Messenger):
    """Notes the `param` sites that no handler inside the model has given a value."""

    def __init__(self, fn: Any):
        self.names: list[str] = []
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Handlers of the user lie further in, so their values are there by now."""
        if msg["type"] == "param" and msg["value"] is None:
            self.names.append(msg["name"])


def structure_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Structure:
    """The structure, or a `ValueError` for what has no density over the reals. Call it while tracing."""
    watched = OpenParameters(model)
    seeded = substitute(seed(watched, jr.key(0)), substitute_fn=init_to_uniform)
    sites = trace(seeded).get_trace(*args, **kwargs)
    if watched.names:
        raise HasParametersError(_list(watched.names))
    groups: dict[str, list[Site]] = {name: [] for name in Structure._fields[:-1]}
    for site in sites.values():
        kind = _kind(site)
        if kind is not None:
            groups[kind].append(_site(site, latent=kind == "latent"))
    if not groups["latent"]:
        raise ValueError("the model has no latent site with a continuous distribution: nothing to fit")
    plates = tuple(
        (name, Plate(site["args"][0], site["value"].shape[0]))
        for name, site in sites.items()
        if site["type"] == "plate"
    )
    return Structure(**{name: tuple(group) for name, group in groups.items()}, plates=plates)


def _kind(site: Any) -> str | None:
    if site["type"] == "deterministic":
        return "deterministic"
    if site["type"] != "sample":
        return None
    name, fn = site["name"], site["fn"]
    if site["is_observed"]:
        return "factors" if isinstance(innermost(fn), dist.Unit) else "observed"
    if isinstance(innermost(fn), dist.Delta):
        raise ValueError(
            f"site {name!r} has a delta distribution, which has no density; "
            "record the value with numpyro.deterministic instead"
        )
    if not fn.support.is_discrete:
        return "latent"
    if fn.has_enumerate_support and site["infer"].get("enumerate", "parallel") == "parallel":
        return "enumerated"
    raise ValueError(
        f"site {name!r} is discrete ({type(innermost(fn)).__name__}) and NumPyro cannot sum it out in "
        "parallel, so the model has no density over the reals; sum it out by hand, for example with "
        "numpyro.distributions.MixtureSameFamily, or observe it"
    )


def _site(site: Any, *, latent: bool) -> Site:
    plates = tuple((frame.name, frame.dim) for frame in site["cond_indep_stack"])
    shape, event = jnp.shape(site["value"]), ()
    if site["type"] == "sample":
        event = tuple(site["fn"].event_shape)
    free = shape
    if latent:
        with helpful_support_errors(site):
            free = biject_to(site["fn"].support).inverse_shape(shape)
    batch = shape[: len(shape) - len(event)]
    return Site(site["name"], tuple(batch), event, tuple(free), plates)


def innermost(fn: Any) -> Any:
    """The distribution inside of expansions, masks and independent axes."""
    while hasattr(fn, "base_dist") and isinstance(
        fn, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
    ):
        fn = fn.base_dist
    return fn


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def abstractly(look: Any, *args: Any) -> Any:
    """What `look` returns when its arrays have shapes and no numbers."""
    found = []
    jax.eval_shape(lambda *args: found.append(look(*args)), *args)
    return found[0]
