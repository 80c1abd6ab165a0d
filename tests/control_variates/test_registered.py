"""Every registered control variate on every family; a new one is tested by being registered."""

import pytest
from promises import assert_control_variate
from subjects import ALIKE, EXACT, family, target_2d

from quietgrad.estimators import Controlled
from quietgrad.estimators.control_variates import REGISTRY


def marks(number, name, kind):
    """Each control variate meets one family of each kind that it takes, in turn; the others are slow."""
    taken = [other for other in ALIKE[kind] if refusal(name, other) is None]
    turn = kind not in taken or taken.index(kind) == number % len(taken)
    return () if turn else pytest.mark.slow


def refusal(name, kind):
    return Controlled(name).refuses(target_2d("curved"), family(kind, 2, small=True))


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=marks(number, name, kind))
        for number, name in enumerate(REGISTRY)
        for kind in EXACT
    ],
)
def test_promises_are_kept(name, kind, key):
    assert_control_variate(name, kind, key)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_control_variate_runs_somewhere(name):
    assert None in [refusal(name, kind) for kind in EXACT]


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="unknown control variate 'tailor'.*Did you mean 'taylor'"):
        Controlled("tailor")
