"""Several fits in one call share its seconds, whatever each of them takes."""

from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import pytest

import quietgrad as qg
from quietgrad.fitting import many


@pytest.mark.parametrize(
    ("seconds", "given"), [(None, [None] * 4), (10.0, [10.0, 6.0, 2.0]), (3.0, [3.0])]
)
def test_every_fit_has_what_those_before_it_left(seconds, given, monkeypatch):
    now, asked = [100.0], []

    def fit(*_, seconds, **__):
        asked.append(seconds)
        now[0] += 4.0

    monkeypatch.setattr(many, "fit", fit)
    monkeypatch.setattr(many, "time", SimpleNamespace(monotonic=lambda: now[0]))
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=1)
    found = qg.fit_many([target] * 4, seconds=seconds, key=jr.key(0))
    assert asked == given
    # Those that have not begun say so.
    assert sorted(found.errors) == list(range(len(given), 4))
