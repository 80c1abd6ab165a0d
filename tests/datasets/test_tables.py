"""How rows are split and standardised, and the check of what was parsed."""

import numpy as np
import pytest

from quietgrad.datasets import Table
from quietgrad.datasets.tables import (
    expect,
    hundreds,
    nine_tenths,
    standardise,
    standardise_inputs,
)


def numbered(rows: int) -> Table:
    return Table(np.arange(2.0 * rows).reshape(rows, 2), np.arange(float(rows)))


def test_the_hundred_rows_of_the_earlier_papers():
    train, test = hundreds(numbered(1599))
    assert train.y[:10].tolist() == [1109, 1032, 1002, 487, 979, 1054, 542, 853, 1189, 412]
    assert (len(train.y), len(test.y)) == (100, 100)
    assert not set(train.y) & set(test.y)


@pytest.mark.parametrize(("rows", "train_rows"), [(1605, 1440), (1599, 1431), (569, 504), (442, 396)])
def test_nine_tenths_are_trained_on(rows: int, train_rows: int):
    train, test = nine_tenths(numbered(rows))
    assert len(train.y) == train_rows
    joined = np.concatenate([train.y, test.y])
    np.testing.assert_array_equal(joined, np.random.RandomState(0).permutation(rows))
    np.testing.assert_array_equal(train.x[:, 0], 2 * train.y)


def test_standardising_uses_the_training_rows():
    raw = nine_tenths(numbered(50))
    train, test = standardise(raw)
    np.testing.assert_allclose([train.x.mean(0), train.x.std(0)], [[0, 0], [1, 1]], atol=1e-12)
    np.testing.assert_allclose([train.y.mean(), train.y.std()], [0, 1], atol=1e-12)
    np.testing.assert_allclose(test.y, (raw.test.y - raw.train.y.mean()) / raw.train.y.std())
    inputs_only = standardise_inputs(raw)
    np.testing.assert_array_equal(inputs_only.train.y, raw.train.y)
    np.testing.assert_array_equal(inputs_only.test.x, test.x)


def test_a_constant_column_stays_finite():
    table = Table(np.full((50, 2), 3.0), np.arange(50.0))
    assert not standardise(nine_tenths(table)).train.x.any()


def test_expect_names_each_difference():
    expect(rows=(3, 3))
    with pytest.raises(ValueError, match="^expected sum of rows 3, found 4; expected b 1, found 2$"):
        expect(sum_of_rows=(3, 4), a=(0, 0), b=(1, 2))
