"""Rows spread over devices: the same answer on one, two and eight."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.sharding import spread

SCRIPT = Path(__file__).with_name("mesh_fit.py")
AUTO = (jax.sharding.AxisType.Auto,)


def begin(devices):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(process, devices):
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    found = json.loads(out.splitlines()[-1])
    assert found["devices"] == devices
    return found["answers"]


@pytest.fixture(scope="module")
def alone():
    return answers(begin(1), 1)


def assert_same(found, alone):
    # Sums of rows in another order differ by rounding, which 50 steps and a few Newton steps carry on.
    for name in ("sgd", "auto"):
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-7, err_msg=name)
    # Fillers are among the rows that are shuffled, so that other minibatches are drawn.
    assert np.all(np.isfinite(found["minibatch"]))


@pytest.mark.parametrize("devices", [2, 8])
def test_the_same_answer_on_several_devices(devices, alone):
    assert_same(answers(begin(devices), devices), alone)


def test_what_a_mesh_cannot_do(key):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=AUTO)
    plain = qg.Target(lambda z: -0.5 * z @ z, dim=2)
    rows = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: x * z[0], np.ones(5), dim=2)
    with pytest.raises(ValueError, match="this target has none"):
        qg.fit(plain, mesh=mesh, key=key)
    explicit = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    with pytest.raises(ValueError, match="must be Auto"):
        qg.fit(rows, mesh=explicit, key=key)
    np.testing.assert_allclose(
        spread(rows, mesh).log_density(jnp.ones(2)), rows.log_density(jnp.ones(2))
    )
