"""What is inferred: a log prior, a log likelihood and data."""

from .bayesian_neural_network import BayesianNeuralNetwork
from .hierarchical_poisson import HierarchicalPoisson
from .logistic_regression import LogisticRegression
from .named_model import AbstractNamedModel, AbstractParameters
from .row_blocks import AbstractRows, MappedRows, RowBlocks
from .target import Target

__all__ = [
    "AbstractNamedModel",
    "AbstractParameters",
    "AbstractRows",
    "BayesianNeuralNetwork",
    "HierarchicalPoisson",
    "LogisticRegression",
    "MappedRows",
    "RowBlocks",
    "Target",
]
