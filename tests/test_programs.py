"""Programs of a first fit, counted where nothing has been compiled before: in a process of its own.

An operation that is run eagerly is a program too, and the next one like it finds it compiled: in a
process that has run other tests it would go unseen.
"""

import json
import subprocess
import sys

import pytest

# Of a model and its data, as a user has them, in the precision that jax has by default.
SCRIPT = """
import json, sys
import jax, jax.numpy as jnp, jax.random as jr, numpy as np
import quietgrad as qg

rng = np.random.default_rng(0)
x = rng.normal(size=(60, 4))
y = (x @ [1.0, -1.0, 0.5, 0.0] + rng.logistic(size=60) > 0).astype(float)
target = qg.Target(
    lambda z: -0.5 * z @ z,
    lambda z, data: data[1] * (data[0] @ z) - jnp.logaddexp(data[0] @ z, 0.0),
    (x, y),
    dim=4,
)
imported = "quietgrad.fitting" in sys.modules
key, heard = jr.key(0), []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **more: event.endswith("backend_compile_duration")
    and heard.append(more.get("fun_name"))
)
found = {"imported": imported}
for family in ("mean-field", "full-rank", "low-rank"):
    heard.clear()
    found[family] = qg.fit(target, family, key=key).programs, list(heard)
print(json.dumps(found))
"""
# The first fit compiles the family's start, its evaluation, and the target's values with gradients and
# its curvature at many points. The latter two serve any family.
MOST = {"mean-field": 4, "full-rank": 2, "low-rank": 2}


@pytest.fixture(scope="module")
def found():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("family", MOST)
def test_nothing_is_compiled_but_the_programs_of_the_fit(found, family):
    counted, names = found[family]
    assert 0 < len(names) <= MOST[family], names
    assert counted == len(names)


def test_what_a_fit_needs_is_imported_before_its_clock_runs(found):
    """With the first public name: the clock of a first `qg.fit(...)` is the whole wait for it."""
    assert found["imported"]
