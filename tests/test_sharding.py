"""Rows spread over devices: the same answer on one, two and eight."""

import json
import os
import socket
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


def begin(devices, *arguments, env=None):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "XLA_FLAGS": flags, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(process):
    """By the number of devices."""
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def found():
    """On one, two and eight of the devices of one process."""
    return answers(begin(8))


@pytest.mark.parametrize("devices", ["2", "8"])
def test_the_same_answer_on_several_devices(devices, found):
    alone, several = found["1"], found[devices]
    # Sums of rows in another order differ by rounding, which 50 steps and a few Newton steps carry on.
    for name in ("sgd", "auto"):
        np.testing.assert_allclose(several[name], alone[name], rtol=1e-7, err_msg=name)
    # Fillers are among the rows that are shuffled, so that other minibatches are drawn.
    assert np.all(np.isfinite(several["minibatch"]))


@pytest.mark.slow
def test_two_processes_agree_with_one(found):
    """Each has one device and half of the rows; sums go over the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"QUIETGRAD_COMPILED": "off"}
    both = [begin(1, "127.0.0.1", str(port), str(number), env=env) for number in range(2)]
    first, second = (answers(process)["2"]["sgd"] for process in both)
    assert first == second
    # As above.
    np.testing.assert_allclose(first, found["1"]["sgd"], rtol=1e-7)


def test_several_processes_have_no_clock_in_common(key, monkeypatch):
    """Refused before anything is launched that another process would have to wait for."""
    mesh = jax.make_mesh((1,), ("rows",), axis_types=AUTO)
    target = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: -((x @ z) ** 2), np.ones((4, 2)), dim=2)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    plain = qg.Sgd(by_clock=False)
    for method, more in ((qg.Auto(by_clock=False), {}), (qg.Sgd(), {}), (plain, {"seconds": 9.0})):
        with pytest.raises(ValueError, match="their own clocks"):
            qg.fit(target, method=method, mesh=mesh, key=key, **more)
    with pytest.raises(ValueError, match="restarts are for one process"):
        qg.fit(target, method=plain, mesh=mesh, restarts=2, key=key)


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
