"""a1a: census income, 1605 rows of 119 binary inputs (the paper's logistic regression).

UCI Adult (Becker & Kohavi 1996), binarised by Platt (1998), as distributed with LIBSVM (Chang & Lin
2011). LIBSVM's page says 123 inputs; the file's largest index is 119, and with an intercept that
gives the paper's dimension of 120. Six columns are all zero: there the posterior is the prior.
"""

import numpy as np

from .files import RawFile
from .files import load as load_file
from .tables import Expect, Table, expect

FILE = RawFile(
    "a1a.txt",
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a1a",
    sha256="ad644f6d4bbc61385057df45888789c0eee0086ed4a7cc0f42bb136e07e5e0de",
)

EMPTY_COLUMNS = (12, 60, 89, 96, 111, 116)  # numbered from one, as in the file


def load() -> Table:
    """The checked rows in the file's order, labels 0 (earns less) or 1."""
    return load_file(FILE, parse)


def parse(text: str, expect: Expect = expect) -> Table:
    """Read lines of `label index:value ...`; raise a `ValueError` unless they are a1a."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    label = np.array([float(line[0]) for line in lines])
    entries = [(row, *_entry(item)) for row, line in enumerate(lines) for item in line[1:]]
    expect(
        rows=(1605, len(lines)),
        non_zeros=(22249, len(entries)),
        smallest_index=(1, min((index for _, index, _ in entries), default=None)),
        largest_index=(119, max((index for _, index, _ in entries), default=None)),
    )
    x = np.zeros((1605, 119))
    for row, index, value in entries:
        x[row, index - 1] = value
    active = np.count_nonzero(x, axis=1)
    expect(
        rows_labelled_minus_one=(1210, int(np.sum(label == -1))),
        rows_labelled_one=(395, int(np.sum(label == 1))),
        sum_of_the_row_numbers_labelled_one=(328645, int(np.sum(1 + np.flatnonzero(label == 1)))),
        ones=(22249, int(np.sum(x == 1))),
        active_inputs_per_row=((12, 14), (int(active.min()), int(active.max()))),
        all_zero_columns=(EMPTY_COLUMNS, tuple((1 + np.flatnonzero(~x.any(axis=0))).tolist())),
    )
    return Table(x, (label == 1).astype(float))


def _entry(item: str) -> tuple[int, float]:
    index, colon, value = item.partition(":")
    if not colon:
        raise ValueError(f"expected entries of the form index:value, found {item!r}")
    return int(index), float(value)
