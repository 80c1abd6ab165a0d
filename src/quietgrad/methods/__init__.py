"""Methods: how an ELBO is climbed. Each is a frozen object with its settings."""

from .auto import Auto
from .bam import Bam
from .method import AbstractMethod, Problem
from .saa import Saa
from .sgd import Sgd

REGISTRY: dict[str, type[AbstractMethod]] = {
    "auto": Auto,
    "sgd": Sgd,
    "saa": Saa,
    "bam": Bam,
}

# What to answer to names of PyMC, Stan, NumPyro and optax, which are given by their letters.
ADVICE = {
    "A family is the second argument: fit(target, 'mean-field').": "advi meanfield mean meanfieldadvi",
    "A family is the second argument: fit(target, 'full-rank').": "fullrankadvi fullrank laplace",
    "Every optimiser of optax is one for stochastic steps: qg.Sgd(optimizer=optax.adam(0.01)).": (
        "adam adamw rmsprop adagrad adagradwindow momentum clippedadam svi vi bbvi optax"
    ),
    "'saa' runs L-BFGS on fixed draws.": "lbfgs bfgs dadvi deterministicadvi",
    "Did you mean 'bam'?": "batchandmatch",
    "quietgrad runs no Markov chains of its own; examples/vi_then_nuts.py starts NUTS from a fit.": (
        "nuts hmc mcmc"
    ),
}
OTHER_NAMES = {name: sentence for sentence, names in ADVICE.items() for name in names.split()}

__all__ = ["OTHER_NAMES", "REGISTRY", "AbstractMethod", "Auto", "Bam", "Problem", "Saa", "Sgd"]
