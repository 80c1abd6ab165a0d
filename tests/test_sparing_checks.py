"""Types are checked in the first calls of each function in every test."""

import functools

import jax.numpy as jnp
import pytest
import sparing_checks
from beartype import beartype
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

from quietgrad.families import bases

WRONG = jnp.zeros((2, 3))


def made():
    """A function with a check, from a definition that runs each time."""

    @jaxtyped(typechecker=beartype)
    def total(x: Float[Array, " draws"]) -> Float[Array, ""]:
        return x.sum()

    return total


def test_the_package_is_checked():
    with pytest.raises(TypeCheckError, match="logpdf|log_prob"):
        bases.Normal().log_prob("not an array")


def test_first_calls_are_checked_and_later_ones_are_not():
    total = made()
    for _ in range(sparing_checks.CHECKED_CALLS):
        with pytest.raises(TypeCheckError, match="draws"):
            total(WRONG)
    assert total(WRONG) == 0
    sparing_checks.next_test()
    with pytest.raises(TypeCheckError, match="draws"):
        total(WRONG)


def test_what_is_returned_is_checked():
    @jaxtyped(typechecker=beartype)
    def doubled(x: Float[Array, " draws"]) -> Float[Array, ""]:
        return 2 * x

    with pytest.raises(TypeCheckError, match="return value"):
        doubled(jnp.zeros(3))


def test_functions_of_one_definition_are_counted_together():
    for _ in range(sparing_checks.CHECKED_CALLS):
        made()(jnp.zeros(3))
    assert made()(WRONG) == 0


@pytest.mark.parametrize("_again", range(2))
def test_each_test_counts_anew(_again):
    for _ in range(sparing_checks.CHECKED_CALLS):
        with pytest.raises(TypeCheckError, match="draws"):
            made()(WRONG)


def test_fields_of_modules_are_checked():
    assert jaxtyped(typechecker=beartype)(made) is made
    with pytest.raises(TypeCheckError, match="df"):
        bases.StudentT(df="three")


def test_names_and_signatures_stay():
    total = made()
    assert total.__name__ == "total"
    assert functools.WRAPPER_ASSIGNMENTS[0] in dir(total)
