"""The Taylor control variate with per-draw gradients and the whole Hessian (Miller et al. 2017)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from ...families import AbstractFamily, split
from ...targets import Target
from ..surrogates import Taylor
from .control_variate import AbstractControlVariate, Sample, pull_each


class TaylorColumn(AbstractControlVariate):
    """One column from the target's second-order expansion at the mean of q."""

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """As the surrogate with the exact scale part."""
        return Taylor().refuses(target, q, 1)

    def hessian_products(self, q: AbstractFamily) -> int:
        """The whole Hessian."""
        return q.dim

    def columns(
        self, state: PyTree, target: Target, q: AbstractFamily, sample: Sample, *, key: Key[Array, ""]
    ) -> Float[Array, "draws params columns"]:
        """E grad f~ minus each draw's gradient."""
        del state, key
        family: Any = q
        center = family.mean()
        gradient = jax.grad(target.log_density)(center)
        hessian = jax.hessian(target.log_density)(center)
        params, rebuild = split(q)

        def mean_value(p: PyTree) -> Float[Array, ""]:
            moved: Any = rebuild(p)
            return gradient @ moved.mean() + 0.5 * jnp.trace(moved.covariance_matmul(hessian))

        mean = ravel_pytree(jax.grad(mean_value)(params))[0]
        slope = gradient[None, :] + (sample.z - center[None, :]) @ hessian
        return (mean[None, :] - pull_each(q, sample.e, slope))[:, :, None]
