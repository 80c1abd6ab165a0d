"""Named inference problems, a model on its data each: the paper's four, and four at hand offline.

`REGISTRY` describes them without loading anything; `load` makes one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp

from .._util.checks import lookup, whole
from ..targets import BayesianNeuralNetwork, HierarchicalPoisson, LogisticRegression, Target
from . import Counts, RawFile, Split, Table, a1a, embedded, frisk, redwine
from .tables import hundreds, nine_tenths, standardise, standardise_inputs

LEARNING_RATE = 0.01
NETWORK_REAL_NVP_RATE = 0.001

Targets = tuple[Target, Target | None]


@dataclass(frozen=True, eq=False)
class Task:
    """A model on its data.

    `train` and `test` are the posteriors given the training rows and given the held-out rows (the
    latter for its likelihood only; None where nothing is held out). `batch_size` is None for full
    batches. `simulated` says that the data is not real.
    """

    name: str
    title: str
    train: Target
    test: Target | None
    dim: int
    batch_size: int | None
    simulated: bool
    real_nvp_rate: float

    def learning_rate(self, family: str) -> float:
        """The rate of Adam that the paper uses with the family of this registered name.

        Every family named "real-nvp..." counts as the paper's Real NVP, the rest as its Gaussians.
        """
        return self.real_nvp_rate if family.startswith("real-nvp") else LEARNING_RATE


@dataclass(frozen=True)
class Entry:
    """A task that is not loaded yet. `file` is what must be at hand or downloaded, if anything."""

    title: str
    make: Callable[[], Targets]
    file: RawFile | None = None
    batch_size: int | None = None
    simulated: bool = False
    real_nvp_rate: float = LEARNING_RATE


def load(name: str) -> Task:
    """The task of this name, with its data; see `REGISTRY` for the names."""
    entry = lookup(REGISTRY, name, "task")
    train, test = entry.make()
    return Task(
        name,
        entry.title,
        train,
        test,
        whole(train.dim, "dim", least=1),
        entry.batch_size,
        entry.simulated,
        entry.real_nvp_rate,
    )


def _logistic(split: Split) -> Targets:
    train, test = (LogisticRegression().target(*_arrays(table)) for table in split)
    return train, test


def _poisson(counts: Counts) -> Targets:
    groups, sites = int(counts.group.max()) + 1, int(counts.site.max()) + 1
    group, site, offset, events = map(jnp.asarray, counts)
    return HierarchicalPoisson(groups, sites).target((group, site, offset, events)), None


def _network(split: Split) -> Targets:
    model = BayesianNeuralNetwork(split.train.x.shape[1])
    train, test = (model.target(*_arrays(table)) for table in standardise(split))
    return train, test


def _arrays(table: Table) -> tuple[jnp.ndarray, jnp.ndarray]:
    return jnp.asarray(table.x), jnp.asarray(table.y)


REGISTRY: dict[str, Entry] = {
    "a1a": Entry(
        "logistic regression, census income (1440 rows)",
        lambda: _logistic(nine_tenths(a1a.load())),
        file=a1a.FILE,
    ),
    "frisk": Entry(
        "hierarchical Poisson regression, police stops in New York City (96 rows)",
        lambda: _poisson(frisk.load()),
        file=frisk.FILE,
    ),
    "redwine": Entry(
        "Bayesian neural network, quality of red wine (100 rows)",
        lambda: _network(hundreds(redwine.load())),
        file=redwine.FILE,
        real_nvp_rate=NETWORK_REAL_NVP_RATE,
    ),
    "redwine-mini": Entry(
        "Bayesian neural network, quality of red wine (1431 rows in batches of 32)",
        lambda: _network(nine_tenths(redwine.load())),
        file=redwine.FILE,
        batch_size=32,
        real_nvp_rate=NETWORK_REAL_NVP_RATE,
    ),
    "breast-cancer": Entry(
        "logistic regression, benign or malignant tumours (504 rows)",
        lambda: _logistic(standardise_inputs(nine_tenths(embedded.breast_cancer()))),
    ),
    "diabetes": Entry(
        "Bayesian neural network, progression of diabetes (100 rows)",
        lambda: _network(hundreds(embedded.diabetes())),
        real_nvp_rate=NETWORK_REAL_NVP_RATE,
    ),
    "diabetes-mini": Entry(
        "Bayesian neural network, progression of diabetes (396 rows in batches of 32)",
        lambda: _network(nine_tenths(embedded.diabetes())),
        batch_size=32,
        real_nvp_rate=NETWORK_REAL_NVP_RATE,
    ),
    "counts": Entry(
        "hierarchical Poisson regression, simulated counts in the shape of frisk (96 rows)",
        lambda: _poisson(embedded.counts()),
        simulated=True,
    ),
}
