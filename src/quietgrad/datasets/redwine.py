"""redwine: quality of 1599 red wines from 11 measurements (the paper's Bayesian neural network).

Cortez, Cerdeira, Almeida, Matos & Reis (2009), UCI repository, doi 10.24432/C56S3T.
"""

import numpy as np

from .files import RawFile
from .files import load as load_file
from .tables import Expect, Table, expect

FILE = RawFile(
    "winequality-red.csv",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality/winequality-red.csv",
    sha256="70b21afb85ca3e0fe5046da9dbe2ddcaed62bb84305d3f73e0823b6a768ee036",
)

QUALITY_COUNTS = {3: 10, 4: 53, 5: 681, 6: 638, 7: 199, 8: 18}


def load() -> Table:
    """The checked rows in the file's order, as measured (not standardised)."""
    return load_file(FILE, parse)


def parse(text: str, expect: Expect = expect) -> Table:
    """Read the `;`-separated table; raise a `ValueError` unless it is redwine."""
    lines = [line.split(";") for line in text.splitlines() if line.strip()]
    expect(
        lines=(1600, len(lines)),
        values_per_line=([12], sorted({len(line) for line in lines})),
        last_column=("quality", lines[0][-1].strip().strip('"') if lines else None),
    )
    table = np.array([[float(value) for value in line] for line in lines[1:]])
    x, y = table[:, :-1], table[:, -1]
    quality, counts = np.unique(y, return_counts=True)
    expect(
        missing_values=(0, int(np.sum(~np.isfinite(table)))),
        quality_counts=(QUALITY_COUNTS, dict(zip(quality.tolist(), counts.tolist(), strict=True))),
        rows_that_repeat_an_earlier_one=(240, len(table) - len(np.unique(table, axis=0))),
        sum_of_the_inputs=("143072.78", f"{x.sum():.2f}"),
        sum_of_row_number_times_quality=(7249197, int(np.arange(1, len(y) + 1) @ y)),
    )
    return Table(x, y)
