"""Draws of a NumPyro guide as antithetic pairs: a site's draw and its mirror image share one key.

x = c + s (y - c), where y is what NumPyro would draw, c the centre of a symmetric distribution, and s is
1 for one particle of a pair and -1 for the other. A transformed distribution is mirrored at its base.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.primitives import Messenger

LOCATED = (
    dist.Cauchy,
    dist.Laplace,
    dist.Logistic,
    dist.LowRankMultivariateNormal,
    dist.MultivariateNormal,
    dist.MultivariateStudentT,
    dist.Normal,
    dist.StudentT,
)
# A value, and what NumPyro keeps of the way to it: (input, cache) of each transform.
Draw = tuple[Any, list[Any]]


class Mirrored(Messenger):
    """Draws latent sites with a sign. Sites without a centre are drawn for each particle by itself.

    Wrap it around `seed`, which gives each site its key. A site that is not reparametrised is refused.
    """

    def __init__(self, fn: Any, sign: Float[Array, ""]):
        self.sign = sign
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        """Fill in the value, or change the key."""
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        fn, key = msg["fn"], msg["kwargs"]["rng_key"]
        if not fn.has_rsample:
            raise ValueError(
                f"site {msg['name']!r} of the guide ({type(fn).__name__}) has no reparametrised draws, "
                "which QuietELBO needs; use numpyro.infer.TraceGraph_ELBO, or sum the site out"
            )
        drawn = _draw(fn, self.sign, msg["kwargs"].get("sample_shape", ()), key)
        if drawn is not None:
            msg["value"], msg["intermediates"] = drawn
        else:
            msg["kwargs"]["rng_key"] = jr.fold_in(key, jnp.where(self.sign > 0, 0, 1))


def centre(fn: Any) -> Any:
    """The point about which a distribution is symmetric; None if there is none, or it is not known."""
    if isinstance(fn, LOCATED):
        return fn.loc
    if isinstance(fn, dist.Uniform):
        return jnp.add(fn.low, fn.high) / 2  # pyright: ignore[reportArgumentType]
    # What these change, they change from the left: the centre broadcasts as it is.
    if isinstance(fn, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution):
        return centre(fn.base_dist)
    return None


def fixed_transforms(fn: dist.Distribution) -> bool:
    """Whether a transformed distribution has no arrays in its transforms, so nothing that is trained."""
    if isinstance(fn, dist.Independent | dist.MaskedDistribution):
        return fixed_transforms(fn.base_dist)
    transforms = fn.transforms if isinstance(fn, dist.TransformedDistribution) else []
    return not any(isinstance(x, jax.Array) for x in jax.tree.leaves(transforms))


def _draw(fn: Any, sign: Float[Array, ""], shape: tuple[int, ...], key: Array) -> Draw | None:
    middle = centre(fn)
    if middle is not None:
        plain = fn.sample(key, shape)
        return middle + sign * (plain - middle), []
    if isinstance(fn, dist.Independent | dist.MaskedDistribution):
        return _draw(fn.base_dist, sign, shape, key)
    if not isinstance(fn, dist.TransformedDistribution):
        return None
    drawn = _draw(fn.base_dist, sign, shape, key)
    if drawn is None:
        return None
    x, kept = drawn[0], list[Any]()
    for transform in fn.transforms:
        before = x
        x, cache = transform.call_with_intermediates(before)
        kept.append([before, cache])
    return x, kept
