"""Every registered family keeps the promises of `family_promises`."""

import pytest
from family_promises import PROMISES, promises_of

from quietgrad import families

# By case, whose promises share what is compiled for it.
ALL = [pair for name in families.REGISTRY for pair in promises_of(name)]


def label(pair):
    case, name = pair
    return "-".join(str(part) for part in (*case, name) if part is not None)


@pytest.mark.parametrize(("case", "promise"), ALL, ids=map(label, ALL))
def test_family_keeps_its_promise(case, promise):
    PROMISES[promise].check(case)
