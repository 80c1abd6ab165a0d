"""Every registered family keeps the promises of `family_promises`."""

import pytest
from family_promises import PROMISES, SMALL, cases_of, promises_of
from subjects import FLOWS

from quietgrad import families

# By case, whose promises share what is compiled for it.
ALL = [pair for name in families.REGISTRY for pair in promises_of(name)]


def often(case):
    """Whether a case is for every run: the smallest dimensions and, but for flows, the largest.

    Flows take turns with the others and with other bases. Their transports are layers of the same
    kind, and a base enters by its log density and score alone.
    """
    name, dim, base = case
    if name not in FLOWS:
        return dim != SMALL
    if dim < SMALL and base is None:
        return True
    rare = [each for each in cases_of(name) if each[1] >= SMALL or each[2] is not None]
    return rare.index(case) == FLOWS.index(name) % len(rare)


def in_turn(pair):
    """Whether a promise is asked of a case in every run: in two dimensions, where most bugs show.

    Of flows, which share their code, every second one in turn; but each has a score of its own.

    Other dimensions and bases of a family take turns from promise to promise, and every fourth promise
    is asked of one of them.
    """
    case, promise = pair
    if not often(case):
        return False
    if case[1:] == (2, None):
        if case[0] not in FLOWS or promise == "score_is_the_derivative_of_log_prob":
            return True
        return (FLOWS.index(case[0]) + list(PROMISES).index(promise)) % 2 == 0
    asked = [other for other, same in ALL if same == promise and other[0] == case[0] and often(other)]
    others = [other for other in asked if other[1:] != (2, None)]
    turn = list(families.REGISTRY).index(case[0]) + list(PROMISES).index(promise)
    due = turn % 4 == 0 or others == asked
    return due and others.index(case) == turn // 4 % len(others)


def label(pair):
    case, name = pair
    return "-".join(str(part) for part in (*case, name) if part is not None)


@pytest.mark.parametrize(
    ("case", "promise"),
    [pytest.param(*pair, marks=() if in_turn(pair) else pytest.mark.slow) for pair in ALL],
    ids=map(label, ALL),
)
def test_family_keeps_its_promise(case, promise):
    PROMISES[promise].check(case)
