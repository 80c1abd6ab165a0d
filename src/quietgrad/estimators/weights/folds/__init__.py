"""Folds: which draws coefficients are fitted on, their own (in-sample) or others (cross-fitted)."""

from .folds import AbstractFolds
from .in_sample import InSample
from .k_fold import KFold
from .leave_one_out import LeaveOneOut

REGISTRY: dict[str, type[AbstractFolds]] = {
    "in-sample": InSample,
    "k-fold": KFold,
    "leave-one-out": LeaveOneOut,
}

__all__ = ["REGISTRY", "AbstractFolds", "InSample", "KFold", "LeaveOneOut"]
