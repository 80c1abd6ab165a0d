"""Functions made twice by the same call have one description, others do not."""

import functools

import numpy as np
import optax
import pytest

from quietgrad._util.fingerprint import fingerprint


def scale_by(factor, *, offset=0.0):
    def apply(x):
        return factor * x + offset

    return apply


def power(x, exponent=2):
    return x**exponent


def countdown(n):
    def step(n):
        return step(n - 1) if n else 0

    return step


class Holder:
    def method(self):
        return self


HOLDER, SHARED = Holder(), object()

SAME = {
    "closures": lambda: scale_by(2.0),
    "keyword closures": lambda: scale_by(2.0, offset=1.0),
    "plain functions": lambda: power,
    "partials": lambda: functools.partial(power, exponent=3),
    "bound methods": lambda: HOLDER.method,
    "closures over arrays": lambda: scale_by(np.arange(3.0)),
    "closures over lists": lambda: scale_by([1, (2.0, "three"), None]),
    "closures over dicts": lambda: scale_by({"a": 1, "b": [2]}),
    "closures over shared objects": lambda: scale_by(SHARED),
    "recursive closures": lambda: countdown(3),
    "adam": lambda: optax.adam(1e-2),
    "adam on a schedule": lambda: optax.adam(optax.cosine_decay_schedule(1e-2, 100)),
    "chains": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)),
}

DIFFERENT = {
    "numbers": (scale_by(2.0), scale_by(3.0)),
    "types of numbers": (scale_by(1), scale_by(1.0)),
    "truth and one": (scale_by(True), scale_by(1)),  # noqa: FBT003
    "keywords": (scale_by(2.0), scale_by(2.0, offset=1.0)),
    "functions": (power, scale_by),
    "code": (lambda x: x + 1, lambda x: x + 2),
    "partials": (functools.partial(power, exponent=3), functools.partial(power, exponent=4)),
    "arrays": (scale_by(np.arange(3.0)), scale_by(np.ones(3))),
    "types of arrays": (scale_by(np.ones(3)), scale_by(np.ones(3, np.float32))),
    "shapes of arrays": (scale_by(np.ones(4)), scale_by(np.ones((2, 2)))),
    "tuples and lists": (scale_by([1]), scale_by((1,))),
    "objects": (scale_by(object()), scale_by(object())),
    "owners of methods": (Holder().method, Holder().method),
    "rates": (optax.adam(1e-2), optax.adam(1e-3)),
    "optimisers": (optax.adam(1e-2), optax.adamw(1e-2)),
    "schedules": (
        optax.adam(optax.cosine_decay_schedule(1e-2, 100)),
        optax.adam(optax.cosine_decay_schedule(1e-2, 200)),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_call_makes_the_same_description(name):
    first, second = fingerprint(SAME[name]()), fingerprint(SAME[name]())
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_calls_make_different_descriptions(name):
    first, second = map(fingerprint, DIFFERENT[name])
    assert first != second


def test_defaults_count():
    def make(default):
        def with_default(x, y=default):
            return x + y

        return with_default

    assert fingerprint(make(1)) == fingerprint(make(1))
    assert fingerprint(make(1)) != fingerprint(make(2))


def test_a_changed_list_changes_the_description():
    factors = [1.0]
    before = fingerprint(scale_by(factors))
    factors.append(2.0)
    assert fingerprint(scale_by(factors)) != before


def test_objects_are_kept_alive():
    """An address that is used again must not make two objects one."""
    prints = {fingerprint(scale_by(object())) for _ in range(100)}
    assert len(prints) == 100
