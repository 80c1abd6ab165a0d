"""The families by name, and what other libraries call them."""

from typing import Any

from .._util.checks import unknown
from .conditional import Hierarchical
from .family import AbstractFamily
from .flow import AbstractFlow
from .full_rank import FullRank
from .low_rank import LowRank
from .mean_field import MeanField
from .mixture import Mixture
from .real_nvp import AffineRealNVP, RealNVP
from .semi_implicit import SemiImplicit
from .sparse import SparseGaussian
from .structured import Arrowhead, Chain
from .whitened_flow import WhitenedRealNVP
from .whitened_layers import AutoregressiveFlow, SplineFlow

REGISTRY: dict[str, type[AbstractFamily]] = {
    "mean-field": MeanField,
    "low-rank": LowRank,
    "full-rank": FullRank,
    "arrowhead": Arrowhead,
    "chain": Chain,
    "sparse": SparseGaussian,
    "hierarchical": Hierarchical,
    "mixture": Mixture,
    "real-nvp": RealNVP,
    "real-nvp-affine": AffineRealNVP,
    "real-nvp-whitened": WhitenedRealNVP,
    "autoregressive-flow": AutoregressiveFlow,
    "spline-flow": SplineFlow,
    "semi-implicit": SemiImplicit,
}
# The name that stands for a family of the method's choice.
ANY_FAMILY = "auto"

FLOWS = ", ".join(repr(name) for name, made in REGISTRY.items() if issubclass(made, AbstractFlow))
# What to answer to names of PyMC, Stan, NumPyro and the literature, which are given by their letters.
ADVICE = {
    "ADVI fits a Gaussian: did you mean 'mean-field', or 'full-rank' for one with correlations?": (
        "advi vi svi bbvi gaussian normal"
    ),
    "Did you mean 'mean-field'?": (
        "meanfieldadvi meanfieldvi diagonal factorized factorised autonormal autodiagonalnormal"
    ),
    "Did you mean 'low-rank'?": "autolowrankmultivariatenormal lowrankmultivariatenormal",
    "Did you mean 'full-rank'?": (
        "fullrankadvi fullrankvi full dense mvn multivariatenormal automultivariatenormal"
    ),
    "A Gaussian with correlations is 'full-rank'; it is fitted by the ELBO, not at the mode.": (
        "laplace laplaceapproximation autolaplaceapproximation"
    ),
    f"Flows are {FLOWS}; those of FlowJAX are in quietgrad.adapters.flowjax.": (
        "flow flows normalizingflow normalizingflows normalisingflow normalisingflows nvp iaf maf "
        "spline coupling couplingflow autoregressive autoiafnormal autobnafnormal"
    ),
    "Did you mean 'mixture'?": "gmm mixtureofgaussians gaussianmixture",
    "Did you mean 'semi-implicit'?": "implicit sivi uivi ksivi hierarchicalvi",
    "quietgrad approximates a posterior and runs no Markov chains; examples/vi_then_nuts.py starts NUTS "
    "from a fit.": "nuts hmc mcmc gibbs metropolis",
}
OTHER_NAMES = {name: sentence for sentence, names in ADVICE.items() for name in names.split()}


def named(name: Any, *also: str) -> type[AbstractFamily]:
    """The family of this name, or a `ValueError` that says which there are and which may be meant.

    `also` are names that the caller understands beside those of families.
    """
    if isinstance(name, str) and name in REGISTRY:
        return REGISTRY[name]
    raise ValueError(unknown("family", name, [*REGISTRY, *also], OTHER_NAMES))
