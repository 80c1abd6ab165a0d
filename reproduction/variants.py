"""What the paper describes and its study does not run: beta by other criteria, another Real NVP.

And a mean-field Gaussian with a narrow start. The specs beta.toml, flows.toml and contributions.toml
name this file as their module.
"""

from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

import quietgrad as qg
from quietgrad.estimators import Controlled
from quietgrad.estimators.control_variates import QuadraticColumn
from quietgrad.estimators.surrogates import Quadratic
from quietgrad.families.bases import AbstractBase, Normal
from quietgrad.families.real_nvp import Coupling


def quadcv_criterion(
    *,
    draws: int,
    criterion: Literal["pairwise", "variance", "squared-norm"],
    per_dimension: bool,
    rate: float = 1e-2,
) -> Controlled:
    """QuadCV with per-draw gradients; beta minimises one of the paper's three criteria (section 3.2).

    Beta is shared by all parameters or one for each (section 3.1), from running averages of earlier
    steps, as Algorithm 1 has it.
    """
    return Controlled(
        QuadraticColumn(Quadratic(rate=rate)),
        criterion=criterion,
        solver="ridge",
        source="lagged",
        per_dimension=per_dimension,
        entropy="closed",
        draws=draws,
    )


class ScaledCoupling(Coupling):
    """A coupling whose log scales are s_j tanh(network_j): tanh bounds the network, s_j is learned.

    Dinh et al. (2017) multiply the tanh of the scale network by a learned scale. The paper mentions the
    tanh only.
    """

    size: Float[Array, " moved"]

    @classmethod
    def of(cls, layer: Coupling) -> "ScaledCoupling":
        """The same layer with s_j = 1, at which it is the paper's coupling."""
        moved = layer.shift.biases[-1].shape[0]
        return cls(layer.scale, layer.shift, layer.cut, layer.first_moves, jnp.ones(moved))

    def identity(self) -> "ScaledCoupling":
        """The same layer with silent networks, which moves nothing."""
        return ScaledCoupling(
            self.scale.silent(), self.shift.silent(), self.cut, self.first_moves, self.size
        )

    def _condition(
        self, kept: Float[Array, " kept"]
    ) -> tuple[Float[Array, " moved"], Float[Array, " moved"]]:
        log_scale, shift = super()._condition(kept)
        return self.size * log_scale, shift


class ScaledRealNVP(qg.RealNVP):
    """The paper's flow with a learned scale of every coordinate's tanh."""

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], **settings: Any) -> "ScaledRealNVP":
        """The networks of `RealNVP.init` with this key, and scales of one."""
        plain = qg.RealNVP.init(dim, key=key, **settings)
        layers = [ScaledCoupling.of(layer) for layer in plain.layers if isinstance(layer, Coupling)]
        return cls(tuple(layers), dim, plain.base)


class NarrowMeanField(qg.MeanField):
    """The mean-field Gaussian with the paper's start, its standard deviations divided by exp(3).

    `Auto` tries such a start beyond 256 coordinates (its field `shrink`): the weights of a network that
    are drawn with standard deviations near one are noise.
    """

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], base: AbstractBase = Normal()) -> "NarrowMeanField":
        """The paper's start, narrower."""
        start = qg.MeanField.init(dim, key=key, base=base)
        return cls(start.loc, start.log_std - qg.Auto().shrink, start.base)


ESTIMATORS = {"quadcv-criterion": quadcv_criterion}
FAMILIES = {"real-nvp-scaled": ScaledRealNVP, "mean-field-narrow": NarrowMeanField}
