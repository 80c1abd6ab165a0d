"""Names that options accept, for help and completion, which do not wait for the registries' imports."""

from typing import Literal

Family = Literal[
    "auto",
    "mean-field",
    "low-rank",
    "full-rank",
    "arrowhead",
    "chain",
    "hierarchical",
    "mixture",
    "real-nvp",
    "real-nvp-affine",
    "real-nvp-whitened",
    "autoregressive-flow",
    "spline-flow",
    "semi-implicit",
]
Method = Literal["auto", "sgd", "saa", "bam"]
Estimator = Literal[
    "auto",
    "nocv",
    "stl",
    "antithetic",
    "rqmc",
    "quiet",
    "quiet-stein",
    "zvcv-gd",
    "zvcv",
    "quadcv",
    "quadcv-fast",
    "taylor",
    "joint",
    "ensemble",
    "score",
    "score-loo",
    "score-stein",
    "sivi",
    "uivi",
    "uivi-stein",
    "ksivi",
    "zvcv-gd-literal",
    "quadcv-literal",
]
