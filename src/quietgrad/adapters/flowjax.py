"""FlowJAX's flows as families: a bijection, then a learned shift and scale of each coordinate.

Draws go through `transform`, so flows are made with FlowJAX's `invert=False`, which makes that fast.
The path score is carried by the inverse, s' = J^-T s + grad log|det J^-1|: about one more pass for
couplings, and one for each coordinate for masked autoregressive flows, whose inverse is sequential.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .._util.extras import needs_extra
from ..families import AbstractFamily, AbstractFlow, MeanField
from ..families.bases import AbstractBase, Normal
from ..families.flow import AbstractLayer, ShiftScale

with needs_extra("flows", "a flow of FlowJAX"):
    from flowjax import bijections
    from flowjax.distributions import StandardNormal, Transformed
    from flowjax.flows import coupling_flow, masked_autoregressive_flow

LAYERS, KNOTS, INTERVAL = 4, 8, 4.0
# What is left of the last layer of a network at the start.
START = 0.1


class Bijected(AbstractLayer):
    """A bijection of FlowJAX as a layer."""

    bijection: Any

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of u and log|det J|."""
        return _as_given(self.bijection.transform_and_log_det, u)

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score is pulled back through the inverse."""
        v, log_det = self.forward(u)
        _, pull_back = jax.vjp(lambda v: _as_given(self.bijection.inverse_and_log_det, v), v)
        return v, log_det, pull_back((score, jnp.ones_like(log_det)))[0]

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """u with forward(u) = v."""
        return self.bijection.inverse(v)


class FlowjaxFlow(AbstractFlow):
    """Any flow of FlowJAX on a standard normal base: `FlowjaxFlow.of(flow)`.

    The flow, or its bijection, must be made with `invert=False`. It cannot start from a simpler
    solution; the three flows below can.
    """

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()

    @classmethod
    def of(cls, flow: Any) -> "FlowjaxFlow":
        """The family of a flow or of a bijection, starting where it is."""
        if isinstance(flow, Transformed):
            if not isinstance(flow.base_dist, StandardNormal):
                raise ValueError(
                    f"the flow's base must be a StandardNormal; got {type(flow.base_dist).__name__}"
                )
            flow = flow.bijection
        if not isinstance(flow, bijections.AbstractBijection):
            raise TypeError(f"flow must be a flow or bijection of FlowJAX; got {type(flow).__name__}")
        if isinstance(flow, bijections.Invert):
            raise ValueError(
                "the flow was made with invert=True, which is quick for densities and slow for draws; "
                "make it with invert=False"
            )
        if flow.cond_shape is not None or len(flow.shape) != 1:
            raise ValueError(
                f"the flow must be one of vectors, without conditions; got shape {flow.shape} and "
                f"cond_shape {flow.cond_shape}"
            )
        return cls(layers=_layers(flow), size=flow.shape[0])

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""]) -> "FlowjaxFlow":
        """A coupling flow of splines."""
        return cls(layers=_layers(_coupling(dim, _spline(KNOTS), LAYERS, key)), size=dim)


class _StartsFromMeanField(AbstractFlow):
    """Its networks can be silenced. What is left permutes the coordinates, which changes no density.

    It holds functions of FlowJAX, so that a file has its arrays and what `init` was called with.
    """

    flow_settings: eqx.AbstractVar[tuple[tuple[str, int], ...]]
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "AbstractFlow":
        """Silent networks, then the mean-field member's shift and scale."""
        del key
        other = cast("MeanField", other)
        still = _quieter(self.layers[0], 0.0)
        return eqx.tree_at(lambda q: q.layers, self, (still, ShiftScale(other.loc, other.log_std)))

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `remake`."""
        return {"dim": self.dim, **dict(self.flow_settings)}

    @classmethod
    def remake(cls, *, dim: int, **settings: int) -> AbstractFamily:
        """A flow of the same structure."""
        return cls.init(dim, key=jax.random.key(0), **settings)


class CouplingFlow(_StartsFromMeanField):
    """FlowJAX's coupling flow with affine couplings (Dinh et al. 2017)."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    flow_settings: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], flow_layers: int = LAYERS) -> "CouplingFlow":
        """FlowJAX's own start with quieter networks."""
        layers = _layers(_coupling(dim, bijections.Affine(), flow_layers, key))
        return cls(layers=layers, size=dim, flow_settings=(("flow_layers", flow_layers),))


class SplineFlow(_StartsFromMeanField):
    """FlowJAX's coupling flow with rational quadratic splines (Durkan et al. 2019)."""

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    flow_settings: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], flow_layers: int = LAYERS, knots: int = KNOTS
    ) -> "SplineFlow":
        """FlowJAX's own start with quieter networks; splines act on the base's -4 to 4."""
        layers = _layers(_coupling(dim, _spline(knots), flow_layers, key))
        made_with = (("flow_layers", flow_layers), ("knots", knots))
        return cls(layers=layers, size=dim, flow_settings=made_with)


class AutoregressiveFlow(_StartsFromMeanField):
    """FlowJAX's masked autoregressive flow, in the direction that draws quickly (Kingma et al. 2016).

    `log_prob` of points, and the path score, take one pass for each coordinate.
    """

    layers: tuple[AbstractLayer, ...]
    size: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    flow_settings: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], flow_layers: int = LAYERS) -> "AutoregressiveFlow":
        """FlowJAX's own start with quieter networks."""
        base = StandardNormal((whole(dim, "dim", least=1),))
        flow = masked_autoregressive_flow(key, base_dist=base, flow_layers=flow_layers, invert=False)
        layers = _layers(_shared(flow.bijection, "autoregressive"))
        return cls(layers=layers, size=dim, flow_settings=(("flow_layers", flow_layers),))


def _as_given(map_: Callable[..., Any], x: Float[Array, " dim"]) -> tuple[Array, Array]:
    """Point and log determinant in the precision of x; FlowJAX makes constants in JAX's own."""
    y, log_det = map_(x)
    return y.astype(x.dtype), log_det.astype(x.dtype)


def _layers(bijection: Any) -> tuple[AbstractLayer, ...]:
    return Bijected(bijection), ShiftScale.identity(bijection.shape[0])


def _spline(knots: int) -> Any:
    return bijections.RationalQuadraticSpline(knots=knots, interval=INTERVAL)


def _coupling(dim: int, transformer: Any, layers: int, key: Key[Array, ""]) -> Any:
    dim = whole(dim, "dim", least=1)
    if dim == 1:
        # There is nothing to condition on: the shift and scale that follow are all.
        return bijections.Identity((1,))
    base = StandardNormal((dim,))
    flow = coupling_flow(key, base_dist=base, transformer=transformer, flow_layers=layers, invert=False)
    return _shared(flow.bijection, type(transformer).__name__, getattr(transformer, "knots", None))


def _quieter(tree: Any, factor: float) -> Any:
    """The tree with the last layer of every conditioning network times a factor.

    At zero the transformers do nothing.
    """

    def scaled(layer: Any) -> Any:
        return jax.tree.map(lambda x: factor * x if eqx.is_inexact_array(x) else x, layer)

    def change(x: Any) -> Any:
        name = "conditioner" if isinstance(x, bijections.Coupling) else "masked_autoregressive_mlp"
        return eqx.tree_at(lambda b: getattr(b, name).layers[-1], x, replace_fn=scaled)

    return _over_conditioned(change, tree)


class _Constructor:
    """Makes a transformer of its parameters, in their precision.

    FlowJAX has a new function for each flow. These compare by what they make, so that a second flow of
    the same kind is not compiled again.
    """

    def __init__(self, make: Callable[[Array], Any], kind: tuple[Any, ...]):
        self._make, self._kind = make, kind

    def __call__(self, params: Float[Array, " params"]) -> Any:
        made = self._make(params)
        return jax.tree.map(lambda x: x.astype(params.dtype) if eqx.is_inexact_array(x) else x, made)

    def __hash__(self) -> int:
        return hash(self._kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constructor) and self._kind == other._kind


def _shared(tree: Any, *kind: Any) -> Any:
    """The flow near the identity, where it is tame, with constructors that compare."""

    def share(x: Any) -> Any:
        made = _Constructor(x.transformer_constructor, kind)
        return eqx.tree_at(lambda b: b.transformer_constructor, x, made)

    return _quieter(_over_conditioned(share, tree), START)


def _over_conditioned(change: Callable[[Any], Any], tree: Any) -> Any:
    """Change every bijection in the tree that has a conditioning network."""
    kinds = (bijections.Coupling, bijections.MaskedAutoregressive)
    return jax.tree.map(
        lambda x: change(x) if isinstance(x, kinds) else x, tree, is_leaf=lambda x: isinstance(x, kinds)
    )
