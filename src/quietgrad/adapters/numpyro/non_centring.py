"""Non-centred forms of NumPyro models, found automatically: z = m + s e for normal sites.

A site z ~ N(m, s^2) whose s is made of other latent sites is one end of a funnel. With the standard
normal e in its place, few data on z no longer make a neck; with many, the centred form is the better.
"""

from typing import Any

import jax
import jax.random as jr
import numpyro.distributions as dist
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro.handlers import block, reparam, seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.reparam import LocScaleReparam, Reparam
from numpyro.primitives import Messenger

from .structure import innermost


class NonCentred(Messenger):
    """The model with standard normal draws in place of normal sites whose scale is a latent site's.

    Its own names keep their values, as deterministic sites. The new latent sites are called
    `<name>_decentered`, as NumPyro's `LocScaleReparam` has it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's run; which sites are changed is read from an abstract run before it."""
        names = scaled_by_sites(self.fn, args, kwargs)
        config: dict[str, Reparam] = {name: LocScaleReparam(0.0) for name in names}
        return reparam(self.fn, config=config)(*args, **kwargs)


def non_centred(model: Any) -> NonCentred:
    """The model for `Target.from_numpyro` with its normal sites of latent scale non-centred."""
    if not callable(model):
        raise TypeError(f"model must be a NumPyro model, a function; got {type(model).__name__}")
    return NonCentred(model)


def scaled_by_sites(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Names of latent normal sites whose scale depends on another latent site. Nothing is computed."""

    def run(given: dict[str, Any] | None) -> dict[str, Any]:
        substituted = (
            substitute(seed(model, jr.key(0)), substitute_fn=init_to_uniform)
            if given is None
            else substitute(seed(model, jr.key(0)), data=given)
        )
        # Handlers around the model see its run alone; the rows of plates come from them.
        with block(hide_fn=lambda msg: msg["type"] != "plate"):
            sites = trace(substituted).get_trace(*args, **kwargs)
        return {name: site for name, site in sites.items() if _latent(site)}

    values = jax.eval_shape(lambda: {name: site["value"] for name, site in run(None).items()})

    def scales(given: dict[str, Any]) -> dict[str, Any]:
        found = {name: innermost(site["fn"]) for name, site in run(given).items()}
        return {name: fn.scale for name, fn in found.items() if isinstance(fn, dist.Normal)}

    program, shapes = jax.make_jaxpr(scales, return_shape=True)(values)
    outputs = list(shapes)
    needed = {
        name: any(dce_jaxpr(program.jaxpr, [name == other for other in outputs])[1]) for name in outputs
    }
    return [name for name in outputs if needed[name]]


def _latent(site: Any) -> bool:
    return site["type"] == "sample" and not site["is_observed"] and not site["fn"].support.is_discrete
