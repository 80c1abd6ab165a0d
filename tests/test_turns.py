"""Cases that take turns: those along the diagonals of a product are for every run."""

import pytest


def is_slow(request):
    return request.node.get_closest_marker("slow") is not None


@pytest.mark.turns(2)
@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_every_value_of_a_product_is_met(first, second, request):
    assert is_slow(request) == ((first + second) % 2 == 1)


@pytest.mark.turns(3, first=1)
@pytest.mark.parametrize(("number", "square"), [(n, n * n) for n in range(7)])
def test_names_that_are_given_together_are_one_parameter(number, square, request):
    assert square == number * number
    assert is_slow(request) == (number not in (1, 4))


@pytest.mark.turns(2)
@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.slow), 1, 2, 3])
def test_what_is_slow_anyway_takes_no_turn(case, request):
    assert is_slow(request) == (case in (0, 2))
