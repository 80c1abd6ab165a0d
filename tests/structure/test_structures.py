"""Which lists of coordinates are a structure: the smallest ones, and those that are none."""

import numpy as np
import pytest

from quietgrad.structure import Structure


@pytest.mark.parametrize(
    ("first", "rows", "sizes"),
    [
        ([0], np.zeros((0, 1)), (1, 1, 0)),
        ([], [[0]], (0, 1, 1)),
        ([1], [[0]], (1, 1, 1)),
        ([], [[1, 0]], (0, 2, 1)),
    ],
    ids=["one global", "one local", "one of each", "one block"],
)
def test_the_smallest_structures_are_accepted(first, rows, sizes):
    structure = Structure(first, rows)
    assert (structure.k, structure.b, structure.n) == sizes
    assert structure.dim == len(first) + np.asarray(rows).size


@pytest.mark.parametrize(
    ("first", "rows"),
    [([], np.zeros((0, 1))), ([], []), ([0], [1]), ([[0]], [[1]])],
    ids=["no coordinate", "no table", "a list of locals", "a table of globals"],
)
def test_what_has_no_coordinates_or_another_shape_is_refused(first, rows):
    with pytest.raises(ValueError, match="blocks a table with a row of coordinates"):
        Structure(first, rows)


@pytest.mark.parametrize(("first", "rows"), [([0], [[2]]), ([0], [[0]]), ([0, 1], [[1], [2]])])
def test_every_coordinate_is_in_one_place(first, rows):
    with pytest.raises(ValueError, match="must be a global or in one block, once"):
        Structure(first, rows)
