"""Every registered control variate on every family; a new one is tested by being registered."""

import pytest
from promises import assert_control_variate
from subjects import family, target_2d

from quietgrad import families
from quietgrad.control_variates import REGISTRY
from quietgrad.estimators import Controlled


@pytest.mark.parametrize("kind", families.REGISTRY)
@pytest.mark.parametrize("name", REGISTRY)
def test_promises_are_kept(name, kind, key):
    assert_control_variate(name, kind, key)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_control_variate_runs_somewhere(name):
    made = Controlled(name)
    assert None in [
        made.refuses(target_2d("curved"), family(kind, 2, small=True)) for kind in families.REGISTRY
    ]


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="unknown control variate 'tailor'.*Did you mean 'taylor'"):
        Controlled("tailor")
