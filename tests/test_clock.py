"""The clock: every second in one phase, and compilation taken out of wherever it happened."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.session.clock import COMPILE, EVALUATE, OPTIMISE, OTHER, Clock


class Hands:
    """Time that passes only where the test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def hands():
    return Hands()


def test_phases_add_up_to_the_total(hands):
    clock = Clock(hands)
    hands.now += 1
    with clock.phase(OPTIMISE):
        hands.now += 2
        with clock.phase(EVALUATE):
            hands.now += 4
        hands.now += 8
    hands.now += 16
    assert clock.read() == {COMPILE: 0, OPTIMISE: 10, EVALUATE: 4, OTHER: 17, "total": 31}
    assert clock.total == 31


def test_a_fit_that_goes_on_has_spent_what_it_had_before(hands):
    clock = Clock(hands)
    clock.compiled(0.0, program=True)
    hands.now += 1
    clock.go_on({COMPILE: 2.0, OPTIMISE: 4.0, EVALUATE: 8.0, OTHER: 16.0, "total": 30.0}, programs=3)
    hands.now += 1
    assert clock.read() == {COMPILE: 2, OPTIMISE: 4, EVALUATE: 8, OTHER: 18, "total": 32}
    assert (clock.total, clock.programs) == (32, 4)


def test_an_exception_ends_the_phase_it_leaves(hands):
    clock = Clock(hands)

    def fails():
        with clock.phase(OPTIMISE):
            hands.now += 1
            raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        fails()
    hands.now += 2
    assert clock.read()[OTHER] == 2


def test_compilation_leaves_the_phase_it_fell_into(hands):
    clock = Clock(hands)
    with clock.phase(OPTIMISE):
        hands.now += 5
        clock.compiled(3.0, program=True)
        hands.now += 1
    assert (clock.spent(OPTIMISE), clock.spent(COMPILE), clock.programs) == (3, 3, 1)


def test_no_second_is_charged_twice(hands):
    """An event that reaches back beyond another one, or beyond the phase, takes only what is left."""
    clock = Clock(hands)
    hands.now += 2
    with clock.phase(OPTIMISE):
        hands.now += 4
        clock.compiled(1.0, program=False)
        hands.now += 1
        clock.compiled(50.0, program=True)
    assert clock.read() == {COMPILE: 2, OPTIMISE: 3, EVALUATE: 0, OTHER: 2, "total": 7}


def test_it_hears_of_real_compilations_while_it_runs():
    clock, other = Clock(), Clock()

    def compiled_anew(x):
        return jnp.sin(x) * 3.25

    x = jax.device_put(np.ones(7))
    with clock.running(), clock.phase(OPTIMISE), other.running():
        pass
    with clock.running(), clock.phase(OPTIMISE):
        program = jax.jit(compiled_anew)
        program(x).block_until_ready()
        counted = clock.programs
        program(x).block_until_ready()
    assert counted == clock.programs == 1
    assert other.programs == 0
    jax.jit(lambda x: x + 17.0)(x)
    assert clock.programs == 1
    assert clock.spent(COMPILE) > 0
