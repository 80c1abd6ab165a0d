"""Data that needs no download: two tables that come with scikit-learn, and simulated counts."""

from types import ModuleType

import numpy as np

from .._util.extras import needs_extra
from .tables import Counts, Table, expect

GROUPS, SITES = 3, 32
# What `counts` is drawn from: log rate = MU + ALPHA[group] + N(0, BETA_STD^2) + offset.
MU, ALPHA, BETA_STD = 0.3, (0.5, 0.4, 0.0), 0.6


def breast_cancer() -> Table:
    """569 tumours, 30 measurements, label 1 if benign (Street, Wolberg & Mangasarian 1993)."""
    x, y = _sklearn_datasets().load_breast_cancer(return_X_y=True)
    expect(shape=((569, 30), x.shape), benign=(357, int(np.sum(y == 1))))
    return Table(x.astype(float), y.astype(float))


def diabetes() -> Table:
    """442 patients, 10 measurements, progression after a year (Efron et al. 2004)."""
    x, y = _sklearn_datasets().load_diabetes(return_X_y=True, scaled=False)
    expect(shape=((442, 10), x.shape), sum_of_responses=(67243, int(np.sum(y))))
    return Table(x.astype(float), y.astype(float))


def counts() -> Counts:
    """Simulated counts in the shape of frisk: 3 groups at 32 sites, 96 rows.

    Always the same: one draw of the hierarchical Poisson model at `MU`, `ALPHA`, `BETA_STD`, with
    exposures from 16 to 527.
    """
    random = np.random.RandomState(0)  # the legacy generator: its stream is frozen
    site, group = np.divmod(np.arange(GROUPS * SITES), GROUPS)
    beta = BETA_STD * random.standard_normal(SITES)
    offset = np.log(6 + np.round(74 * np.exp(random.standard_normal(GROUPS * SITES))))
    rate = np.exp(MU + np.array(ALPHA)[group] + beta[site] + offset)
    return Counts(group, site, offset, random.poisson(rate).astype(float))


def _sklearn_datasets() -> ModuleType:
    with needs_extra("study", "a table that comes with scikit-learn"):
        import sklearn.datasets
    return sklearn.datasets
