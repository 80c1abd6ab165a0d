"""Named estimators: each one a combination of parts."""

from typing import Literal

from .._util.checks import lookup
from .control_variates import Ensemble, ExplicitDescent, QuadraticColumn, SteinColumns, TaylorColumn
from .controlled import Controlled
from .entropy import AbstractEntropy
from .joint_minibatch import Joint
from .ksivi import Ksivi
from .pathwise import Pathwise
from .quiet import Quiet
from .score_function import ScoreFunction
from .scores import ChainMean, HmcChain, SteinByDimension, SteinChain
from .scores.stein import Weighting
from .semi_implicit import SemiImplicitPathwise
from .sivi import Sivi
from .surrogates import (
    InSampleBeta,
    LaggedBeta,
    QuadCV,
    Quadratic,
    QuadraticFlow,
    StreamedQuadratic,
    Taylor,
)
from .surrogates.quadcv import Symmetric, Unsymmetrised
from .surrogates.taylor import SCALES
from .weights import GradientDescent, Polynomial, Ridge, Stein

Entropy = AbstractEntropy | str


def nocv(*, draws: int = 10, entropy: Entropy = "sampled") -> Pathwise:
    """NoCV: the plain pathwise estimator."""
    return Pathwise(draws=draws, entropy=entropy)


def stl(*, draws: int = 10) -> Pathwise:
    """STL: independent draws without the explicit score of q (sticking the landing)."""
    return Pathwise(draws=draws, entropy="stl")


def antithetic(*, draws: int = 10, entropy: Entropy = "sampled") -> Pathwise:
    """Antithetic pairs (e, -e), otherwise the plain estimator."""
    return Pathwise(sampler="antithetic", draws=draws, entropy=entropy)


def rqmc(*, draws: int = 10, entropy: Entropy = "sampled") -> Pathwise:
    """Scrambled Sobol points (randomised quasi-Monte Carlo), otherwise the plain estimator."""
    return Pathwise(sampler="rqmc", draws=draws, entropy=entropy)


def quiet(*, draws: int | None = None) -> Quiet:
    """quiet: pairs or not, STL or not, as measured on the way; 2 draws, 10 for flows and low rank."""
    return Quiet(draws)


def quiet_stein(*, draws: int = 10, order: int = 1, penalty: float = 0.2) -> Pathwise:
    """quiet-stein: sticking the landing with leave-one-out Stein weights."""
    weights = Stein(Polynomial(order), Ridge(penalty), "leave-one-out")
    return Pathwise(draws=draws, weights=weights, entropy="stl")


def zvcv_gd(
    *,
    draws: int = 10,
    order: int = 1,
    steps: int | Literal["converge"] = 4,
    rate: float = 1e-3,
    entropy: Entropy = "sampled",
) -> Pathwise:
    """ZVCV-GD: Stein control variates fitted by a few gradient steps on the same draws (Ng & Wei)."""
    weights = Stein(Polynomial(order), GradientDescent(steps, rate), "in-sample")
    return Pathwise(draws=draws, weights=weights, entropy=entropy)


def zvcv(
    *, draws: int = 50, order: int = 1, penalty: float = 0.2, entropy: Entropy = "sampled"
) -> Pathwise:
    """ZVCV: Stein control variates by leave-one-out ridge regression; unbiased."""
    weights = Stein(Polynomial(order), Ridge(penalty), "leave-one-out")
    return Pathwise(draws=draws, weights=weights, entropy=entropy)


def quadcv(
    *,
    draws: int = 10,
    rate: float = 1e-2,
    beta: Literal["lagged", "in-sample"] = "lagged",
    per_block: bool = False,
    symmetric: bool = True,
    extra_draws: int = 100,
    entropy: Entropy = "sampled",
) -> Pathwise:
    """QuadCV: a learned quadratic; closed-form means, estimated ones for flows (Geffner & Domke)."""
    coefficient = lookup({"lagged": LaggedBeta, "in-sample": InSampleBeta}, beta, "beta")(
        per_block=per_block
    )
    curvature = Symmetric() if symmetric else Unsymmetrised()
    surrogate = QuadCV(
        Quadratic(coefficient, curvature, rate=rate),
        QuadraticFlow(coefficient, curvature, extra_draws=extra_draws, rate=rate),
    )
    return Pathwise(draws=draws, surrogate=surrogate, entropy=entropy)


def quadcv_fast(
    *, draws: int = 10, gain: float = 0.2, per_block: bool = False, entropy: Entropy = "sampled"
) -> Pathwise:
    """QuadCV without its slow start: the quadratic from running averages by Stein's identity."""
    coefficient = LaggedBeta(bounds=(0.0, 1.0), per_block=per_block)
    return Pathwise(draws=draws, surrogate=StreamedQuadratic(coefficient, gain), entropy=entropy)


def taylor(
    *,
    draws: int = 10,
    scale: Literal["exact", "leave-one-out", "none"] = "exact",
    entropy: Entropy = "closed",
) -> Pathwise:
    """Taylor: the target's second-order expansion at the mean of q (Miller et al. 2017)."""
    part = lookup(SCALES, scale, "scale part")()
    return Pathwise(draws=draws, surrogate=Taylor(part), entropy=entropy)


def joint(
    *,
    draws: int | None = None,
    order: int = 1,
    scale: Literal["exact", "leave-one-out", "none"] = "exact",
) -> Joint:
    """Joint: rows' expansions are remembered, against the noise of data and draws (Wang et al. 2024).

    Order 1 is `quiet` inside, order 2 is `taylor` with this scale part.
    """
    if order != 2:
        return Joint(Quiet(draws), order=order)
    inside = taylor(draws=10 if draws is None else draws, scale=scale)
    return Joint(inside, order=2 if scale == "exact" else 1)


def zvcv_gd_literal(
    *, draws: int = 10, order: int = 1, steps: int = 4, rate: float = 1e-3
) -> Controlled:
    """ZVCV-GD with its inner loop written out: slow, the oracle of `zvcv-gd`."""
    return Controlled(
        SteinColumns(Polynomial(order)),
        criterion="variance",
        solver=ExplicitDescent(steps, rate),
        source="in-sample",
        per_dimension=True,
        draws=draws,
    )


def quadcv_literal(*, draws: int = 10, rate: float = 1e-2) -> Controlled:
    """QuadCV with per-draw gradients and closed entropy: slow, the oracle of `quadcv`."""
    return Controlled(
        QuadraticColumn(Quadratic(rate=rate)),
        criterion="squared-norm",
        solver="ridge",
        source="lagged",
        entropy="closed",
        draws=draws,
    )


def ensemble(*, draws: int = 10) -> Controlled:
    """Ensemble: Taylor and learned quadratic with lagged coefficients (Geffner & Domke 2018)."""
    return Controlled(
        Ensemble((TaylorColumn(), QuadraticColumn())),
        criterion="squared-norm",
        solver="ridge",
        source="lagged",
        draws=draws,
    )


def score(*, draws: int = 10) -> ScoreFunction:
    """Score function: values of the target only, no control variate."""
    return ScoreFunction(draws=draws)


def score_loo(*, draws: int = 10) -> ScoreFunction:
    """Score function with the other draws' mean as baseline."""
    return ScoreFunction(baseline="leave-one-out", draws=draws)


def score_stein(*, draws: int = 10, order: int = 1, penalty: float = 0.2) -> ScoreFunction:
    """Score function with Stein control variates by leave-one-out ridge."""
    weights = Stein(Polynomial(order), Ridge(penalty), "leave-one-out")
    return ScoreFunction(weights=weights, draws=draws)


def uivi(
    *, draws: int = 16, burn_in: int = 5, states: int = 5, leapfrogs: int = 5
) -> SemiImplicitPathwise:
    """UIVI for semi-implicit families: the score from Hamiltonian chains of the random input."""
    chain = HmcChain(burn_in=burn_in, states=states, leapfrogs=leapfrogs)
    return SemiImplicitPathwise(ChainMean(chain), draws=draws)


def uivi_stein(
    *, draws: int = 16, order: int | None = 1, burn_in: int = 5, states: int = 5, leapfrogs: int = 5
) -> SemiImplicitPathwise:
    """UIVI with Stein weights, for all points of its chains: the paper's future work.

    Where eps has few dimensions they are for prior draws that all points share (`SteinByDimension`).
    """
    chain = HmcChain(burn_in=burn_in, states=states, leapfrogs=leapfrogs)
    score = SteinByDimension(chain=SteinChain(chain, Weighting(order=order)))
    return SemiImplicitPathwise(score, draws=draws)


def sivi(*, draws: int = 16, nodes: int = 256) -> Sivi:
    """SIVI for semi-implicit families: the gradient of a bound with shared prior draws."""
    return Sivi(draws=draws, nodes=nodes)


def ksivi(*, draws: int = 64) -> Ksivi:
    """KSIVI for semi-implicit families: minus the gradient of a kernel Stein discrepancy."""
    return Ksivi(draws=draws)
